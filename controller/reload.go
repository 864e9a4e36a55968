package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/config"
)

// reloadTimeout bounds how long a reload may take: services have to have read their
// stores, and devices whose definitions change get their rules.
const reloadTimeout = time.Minute

// prepare looks whether a part of the controller can take a configuration, and changes
// nothing. What it returns has the part take it.
type prepare func(ctx context.Context, next *config.Controller) (take func(context.Context) error, err error)

// Reload has the controller take what of a configuration needs no restart: next is what
// Adopt of the one before has returned. It looks at all of it before anything changes: an
// error that is not config.ErrPartly has changed nothing. It is not to be called from two
// goroutines at once, and waits for services that have not loaded yet, which Run has
// them do.
func (c *Controller) Reload(ctx context.Context, next *config.Controller) error {
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	if why := c.unwritable(); why != nil {
		return fmt.Errorf("controller: %w", why)
	}
	var takes []func(context.Context) error
	for _, prepare := range c.reloads {
		take, err := prepare(ctx, next)
		if err != nil {
			return fmt.Errorf("controller: %w", err)
		}
		takes = append(takes, take)
	}
	var errs error
	for _, take := range takes {
		errs = errors.Join(errs, take(ctx))
	}
	if errs != nil {
		return fmt.Errorf("controller: %w: %w", config.ErrPartly, errs)
	}
	c.inForce.Store(next)
	return nil
}

// reloadPinned has the network take the hosts that are pinned.
func (c *Controller) reloadPinned(_ context.Context, next *config.Controller) (func(context.Context) error, error) {
	return func(context.Context) error {
		c.net.SetPinned(pinned(next.Network.Hosts.Pinned))
		return nil
	}, nil
}

// reloadToken has the API take the token in the token file as it is now.
func (c *Controller) reloadToken(_ context.Context, next *config.Controller) (func(context.Context) error, error) {
	tokens, err := c.tokens(next)
	if err != nil {
		return nil, err
	}
	return func(context.Context) error {
		c.api.SetTokens(tokens)
		return nil
	}, nil
}
