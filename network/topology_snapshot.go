package network

import (
	"sync"
	"sync/atomic"

	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/forward"
	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// snapshots holds the current snapshots of the topology and of default forwarding's view.
type snapshots struct {
	cfg      *Config
	switches *registry
	links    *discovery.Discovery
	hosts    *hosts.Table
	rates    *stats.Table

	topo atomic.Pointer[topology.Topology]
	view atomic.Pointer[forward.View]

	wanted   atomic.Uint64 // number of requests
	building sync.Mutex
	built    uint64 // value of wanted when the latest snapshot was begun
	seq      uint64 // number of the latest snapshot
}

// rebuild makes new snapshots of the topology and of default forwarding's view. A caller that
// waits while another caller makes a snapshot that includes its changes does not make one of its
// own.
func (x *snapshots) rebuild() {
	wanted := x.wanted.Add(1)
	x.building.Lock()
	defer x.building.Unlock()
	if x.built >= wanted {
		return
	}
	x.built = x.wanted.Load()
	up := *x.switches.up.Load()
	ids := make([]openflow.DatapathID, 0, len(up))
	for d := range up {
		ids = append(ids, d)
	}
	links := x.links.Links()
	x.rates.Annotate(links, x.cfg.Capacities, func(at PortRef) uint64 {
		if s := up[at.Switch]; s != nil {
			p, _ := s.Port(at.Port)
			return uint64(p.CurrSpeed) * 1000
		}
		return 0
	})
	x.seq++
	t := topology.New(x.seq, ids, links)
	x.topo.Store(t)
	x.view.Store(&forward.View{
		Topology: t, Hosts: x.hosts, Edges: x.links, Metric: x.cfg.ForwardMetric, IgnoreVLAN: x.cfg.IgnoreVLAN, Proactive: x.cfg.Proactive,
		CanMatch: func(d openflow.DatapathID, f openflow.Field) bool {
			s := up[d]
			return s != nil && s.caps.CanMatch(f)
		},
	})
}
