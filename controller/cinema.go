package controller

import (
	"fmt"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/cinema"
)

func newCinema(c *Controller) (Service, error) {
	if !c.cfg.Cinema.Enabled {
		return nil, nil //nolint:nilnil // left out by configuration
	}
	channels, err := channelsOf(c.cfg)
	if err != nil {
		return nil, fmt.Errorf("cinema: %w", err)
	}
	owner, err := c.net.Owner(cinema.Name, network.OwnerOptions{})
	if err != nil {
		return nil, fmt.Errorf("cinema: %w", err)
	}
	agentTLS, err := c.tlsTo(pki.RoleAgent)
	if err != nil {
		return nil, err
	}
	s := cinema.New(cinema.Options{
		Network: c.net, Rules: owner, Store: c.store, Bus: c.bus, Log: c.log, AgentTLS: agentTLS, Dial: c.opts.DialAgent,
		ControlSubnets: c.cfg.Cinema.ControlSubnets, Media: c.cfg.Cinema.MediaAddress, Share: c.cfg.Cinema.LinkShare, Configured: channels,
		Treatments: &c.treatments, LinkMACs: c.cfg.Cinema.LinkMACs,
	})
	c.net.Subscribe(s.NetworkChanged)
	c.net.Doctor().ExamineAddresses(s.Needed)
	reloadDeclared(c, cinema.Name, channelsOf, s.Loaded(), s.Channels.Collection)
	return s, nil
}

// channelsOf are the channels in a configuration.
func channelsOf(c *config.Controller) (map[string]cinema.Channel, error) {
	channels, faults := c.Cinema.ParsedChannels()
	return channels, faults.Err()
}
