package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/service"
	"github.com/sluice-net/sluice/service/control"
	"github.com/sluice-net/sluice/store"
)

// Keys in the store.
const (
	keyConfig    = Name + "/config"
	keyWhitelist = Name + "/whitelist/"
	// keyEdges is where switches with punt rules are remembered.
	keyEdges = Name + "/edges/"
)

// storeTimeout bounds each access to the store.
const storeTimeout = 5 * time.Second

// selection says which connections are carried, and has the switches send their first
// packets up. What is guarded is so by the service's lock, the configuration too.
type selection struct {
	*core
	// changes serialises changes of the configuration, so that store and memory agree.
	changes   sync.Mutex
	entries   *service.Collection[Entry]
	whitelist Whitelist // guarded: the entries in their order
	punts     *standing[edge]
	// view is what the packet-in handler looks at without a lock.
	view atomic.Pointer[view]
}

// view is an immutable extract of the state for the packet-in handler.
type view struct {
	enabled   bool
	whitelist Whitelist
	agents    map[netip.Addr]bool // addresses of agents
	// sessionPorts are the ports that agents use for sessions alone, by address.
	sessionPorts map[netip.Addr]control.PortRange
}

// edge is a switch that has been given punt rules. After a restart switches are back long
// before it shows which of them have hosts: their punt rules are then still wanted, and
// connections go on being noticed.
type edge struct {
	Switch openflow.DatapathID `json:"switch"`
	Flags  bool                `json:"flags"` // it matches TCP flags
}

func newSelection(c *core) *selection {
	s := &selection{core: c}
	s.entries = s.collectEntries()
	s.punts = newStanding(c, "punt/", keyEdges, "switch takes no rules for first packets; connections from there go directly", func(e edge) ([]network.Rule, error) {
		s.mu.Lock()
		list := s.whitelist
		if !s.config.Enabled {
			list = nil
		}
		s.mu.Unlock()
		return Punts(list, time.Now(), e.Switch, e.Flags)
	})
	return s
}

// load reads the configuration and the edges; the entries have been loaded.
func (s *selection) load(ctx context.Context) error {
	cfg := DefaultConfig()
	if e, err := s.store.Get(ctx, keyConfig); err == nil {
		if err := json.Unmarshal(e.Value, &cfg); err != nil {
			return fmt.Errorf("stored configuration: %w", err)
		}
	} else if !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("read the configuration: %w", err)
	}
	if err := s.punts.load(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config, s.whitelist = cfg, inOrder(s.entries.Values())
	s.refresh()
	return nil
}

// refresh publishes the state for the packet-in handler. The lock is held, or nobody
// else knows the service yet.
func (s *selection) refresh() {
	v := &view{enabled: s.config.Enabled, whitelist: s.whitelist, agents: map[netip.Addr]bool{}, sessionPorts: map[netip.Addr]control.PortRange{}}
	for _, a := range s.agents.List() {
		st := a.State()
		for _, addr := range st.Addrs {
			v.agents[addr] = true
			if st.Status.SessionPorts.First > 0 {
				v.sessionPorts[addr] = st.Status.SessionPorts
			}
		}
	}
	s.view.Store(v)
}

// guards says whether a segment comes from one of an agent's session ports.
func (v *view) guards(h *packet.Headers) bool {
	r, known := v.sessionPorts[h.Src]
	return known && r.First <= h.SrcPort && h.SrcPort <= r.Last
}

// find returns the entry that allows a connection, nil if none does.
func (v *view) find(f flow) *Entry {
	if !v.enabled || v.agents[f.client.Addr()] || v.agents[f.server.Addr()] {
		return nil
	}
	entry, _ := v.whitelist.Find(time.Now(), f.client.Addr(), f.server)
	return entry
}

// applyPunts declares the punt rules of every edge switch.
func (s *selection) applyPunts(ctx context.Context) {
	wanted := s.punts.latest()
	for _, dpid := range s.net.EdgeSwitches() {
		wanted[dpid.String()] = edge{dpid, s.seesTCPFlags(dpid)}
	}
	s.punts.keep(ctx, wanted, network.ApplyOptions{})
}

// changed makes a change of what is guarded, and brings it into the switches.
func (s *selection) changed(ctx context.Context, change func()) {
	s.mu.Lock()
	change()
	s.refresh()
	s.mu.Unlock()
	s.applyPunts(ctx) // in force when the caller is told that it is; the keeper mends what fails
	s.wake()
}

// setConfig stores and applies a changed configuration. What is wrong with the change are
// Faults.
func (s *selection) setConfig(ctx context.Context, ch ConfigChange) (Config, error) {
	s.changes.Lock()
	defer s.changes.Unlock()
	cfg, faults := ch.Apply(s.settings())
	if len(faults) > 0 {
		return cfg, faults
	}
	b, err := json.Marshal(cfg)
	if err == nil {
		stored, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		err = s.store.Put(stored, keyConfig, b)
	}
	if err != nil {
		return cfg, fmt.Errorf("store %s: %w", keyConfig, err)
	}
	s.changed(ctx, func() {
		s.config = cfg
		s.publish("config.changed", cfg)
	})
	return cfg, nil
}
