package config

import (
	"maps"
	"slices"
)

// NamedTLS is the TLS settings of one key of a configuration.
type NamedTLS struct {
	// Key is where they stand, like api.tls.
	Key string
	TLS
}

// Certificates lists the settings that name a certificate.
func (c *Controller) Certificates() []NamedTLS {
	all := []NamedTLS{{"api.tls", c.API.TLS}, {"openflow.tls", c.OpenFlow.TLS}, {"store.tls", c.Store.TLS}, {"ovsdb.tls", c.OVSDB.TLS}, {"sos.tls", c.SOS.TLS}}
	for _, name := range slices.Sorted(maps.Keys(c.Handover.Neighbours)) {
		all = append(all, NamedTLS{"handover.neighbours." + name + ".tls", c.Handover.Neighbours[name].TLS})
	}
	return slices.DeleteFunc(all, func(t NamedTLS) bool { return !t.Enabled() })
}
