package config

import (
	"maps"
	"reflect"
	"slices"

	"github.com/sluice-net/sluice/internal/strictyaml"
)

// Adopt returns the configuration that is in force once next has been read: c, with what
// of next takes effect without a restart. A service that runs, and is to run no more,
// keeps its definitions until the restart that this takes.
func (c *Controller) Adopt(next *Controller) *Controller {
	now := *c
	now.Log.Level = next.Log.Level
	now.API.TokenFile = next.API.TokenFile
	now.Network.Hosts.Pinned = next.Network.Hosts.Pinned
	if c.Handover.Enabled && next.Handover.Enabled {
		now.Handover.Classes, now.Handover.Pools, now.Handover.Devices = next.Handover.Classes, next.Handover.Pools, next.Handover.Devices
	}
	if c.QoS.Enabled && next.QoS.Enabled {
		now.QoS.Critical, now.QoS.Classes = next.QoS.Critical, next.QoS.Classes
	}
	return &now
}

// Adopt is the same for an agent.
func (a *Agent) Adopt(next *Agent) *Agent {
	now := *a
	now.Log.Level = next.Log.Level
	return &now
}

// Adopt is the same for a mobile device.
func (m *Mobile) Adopt(next *Mobile) *Mobile {
	now := *m
	now.Log.Level = next.Log.Level
	return &now
}

// Adopt is the same for an ingress gateway.
func (g *Ingress) Adopt(next *Ingress) *Ingress {
	now := *g
	now.Log.Level = next.Log.Level
	return &now
}

// Adopt is the same for an egress gateway.
func (e *Egress) Adopt(next *Egress) *Egress {
	now := *e
	now.Log.Level = next.Log.Level
	return &now
}

// Logging is what is logged, and how.
func (c *Controller) Logging() Log { return c.Log }

// Logging is what is logged, and how.
func (a *Agent) Logging() Log { return a.Log }

// Logging is what is logged, and how.
func (m *Mobile) Logging() Log { return m.Log }

// Logging is what is logged, and how.
func (g *Ingress) Logging() Log { return g.Log }

// Logging is what is logged, and how.
func (e *Egress) Logging() Log { return e.Log }

// Changed lists the keys in which two configurations of one kind differ, but for those
// that are left out. Secrets are not compared.
func Changed(a, b any, but ...string) []string {
	out := []string{}
	differences("", Plain(a), Plain(b), func(key string) {
		if !slices.Contains(but, key) {
			out = append(out, key)
		}
	})
	return out
}

func differences(key string, a, b any, tell func(string)) {
	x, okX := a.(map[string]any)
	y, okY := b.(map[string]any)
	if !okX || !okY {
		if !reflect.DeepEqual(a, b) {
			tell(key)
		}
		return
	}
	all := map[string]bool{}
	for name := range x {
		all[name] = true
	}
	for name := range y {
		all[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		differences(strictyaml.Join(key, name), x[name], y[name], tell)
	}
}
