package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/config"
)

// reloadTimeout bounds a reload. It includes the time in which services read their stores and write
// the rules of devices whose definitions have changed.
const reloadTimeout = time.Minute

// prepare checks whether a part of the controller can apply a configuration, and changes nothing.
// The function that it returns applies the configuration.
type prepare func(ctx context.Context, next *config.Controller) (apply func(context.Context) error, err error)

// Reload applies those settings of a configuration that need no restart. next must be the configuration
// that config.Adopt has returned for the previous one. Reload checks everything before it changes
// anything: after an error other than config.ErrPartly nothing has changed. Its calls must not overlap.
// It waits until Run has loaded all services.
func (c *Controller) Reload(ctx context.Context, next *config.Controller) error {
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	if why := c.unwritable(); why != nil {
		return fmt.Errorf("controller: %w", why)
	}
	var all []func(context.Context) error
	for _, prepare := range c.reloads {
		apply, err := prepare(ctx, next)
		if err != nil {
			return fmt.Errorf("controller: %w", err)
		}
		all = append(all, apply)
	}
	var errs error
	for _, apply := range all {
		errs = errors.Join(errs, apply(ctx))
	}
	if errs != nil {
		return fmt.Errorf("controller: %w: %w", config.ErrPartly, errs)
	}
	c.inForce.Store(next)
	return nil
}

// reloadPinned applies the pinned hosts to the network.
func (c *Controller) reloadPinned(_ context.Context, next *config.Controller) (func(context.Context) error, error) {
	return func(context.Context) error {
		c.net.SetPinned(pinned(next.Network.Hosts.Pinned))
		return nil
	}, nil
}

// reloadToken reads the token file again for the API.
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
