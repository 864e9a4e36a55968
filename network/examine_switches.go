package network

import (
	"context"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/openflow"
)

// examineSwitches looks for switches and ports of the configuration that are not there,
// and for switches that obey another controller, and adds them to a report.
func (d *Doctor) examineSwitches(ctx context.Context, r *diagnosis.Report) {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	var connected []diagnosis.Switch
	for _, s := range d.switches.list() {
		k := diagnosis.Switch{ID: s.dpid, Address: s.RemoteAddr().String(), Ports: map[uint32]bool{}}
		for _, p := range s.Ports() {
			k.Ports[p.Number] = p.Up()
		}
		if err := s.SetRole(ctx, openflow.RoleNoChange); err != nil {
			s.limiter.Warn(d.cfg.Log, "asking a switch for this controller's role", "switch", s.dpid, "error", err)
		}
		k.Role = s.Role()
		connected = append(connected, k)
	}
	r.Findings = append(r.Findings, diagnosis.Switches(d.configured(), connected)...)
}

// configured are the switches and ports that the configuration names.
func (d *Doctor) configured() []PortRef {
	at := map[PortRef]bool{}
	for id := range d.cfg.Names {
		at[PortRef{Switch: id}] = true
	}
	for p := range d.cfg.PortRoles {
		at[p] = true
	}
	for p := range d.cfg.Capacities {
		at[p] = true
	}
	return slices.Collect(maps.Keys(at))
}
