package plugin

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// keyEdges is where switches with punt rules are remembered.
const keyEdges = Name + "/edges/"

// edge is a switch that has been given punt rules. After a restart switches are back long
// before it shows which of them have hosts: their punt rules are then still wanted, and
// connections go on being noticed.
type edge struct {
	Switch openflow.DatapathID `json:"switch"`
	Flags  bool                `json:"flags"` // it matches TCP flags
}

func (s *Service) newPunts() *standing[edge] {
	return newStanding(s, "punt/", keyEdges, "switch takes no rules for first packets; connections from there go directly", func(e edge) ([]network.Rule, error) {
		s.mu.Lock()
		list := s.whitelist
		if !s.config.Enabled {
			list = nil
		}
		s.mu.Unlock()
		return Punts(list, time.Now(), e.Switch, e.Flags)
	})
}

// applyPunts declares the punt rules of every edge switch.
func (s *Service) applyPunts(ctx context.Context) {
	wanted := s.punts.latest()
	for _, dpid := range s.net.EdgeSwitches() {
		wanted[dpid.String()] = edge{dpid, s.seesTCPFlags(dpid)}
	}
	s.punts.keep(ctx, wanted, network.ApplyOptions{})
}
