package sos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/store"
)

// These are keys in the store.
const (
	keyConfig    = Name + "/config"
	keyWhitelist = Name + "/whitelist/"
	// keyEdges is the prefix of the keys of the switches with punt rules.
	keyEdges = Name + "/edges/"
)

// storeTimeout bounds each access to the store.
const storeTimeout = 5 * time.Second

// selection decides which connections are carried by agents, and installs the rules that send their
// first packets to the controller. The service's lock guards the fields that are marked as guarded,
// and the configuration.
type selection struct {
	*core
	// changes serialises changes of the configuration, so that store and memory agree.
	changes   sync.Mutex
	entries   *kit.Collection[Entry]
	whitelist Whitelist // guarded: the entries in their order
	punts     *persistentRules[edge]
	// snapshot is the state that the packet-in handler reads without a lock.
	snapshot atomic.Pointer[snapshot]
}

// snapshot is an immutable extract of the state for the packet-in handler.
type snapshot struct {
	enabled   bool
	whitelist Whitelist
	agents    map[netip.Addr]bool // addresses of agents
	// sessionPorts holds the ports that an agent uses only for sessions, by the agent's address.
	sessionPorts map[netip.Addr]control.PortRange
}

// edge is a switch that has punt rules. After a restart, a switch is connected long before the
// network knows again that hosts are connected to it. Its punt rules stay wanted all the time, so
// that no connection is missed.
type edge struct {
	Switch openflow.DatapathID `json:"switch"`
	Flags  bool                `json:"flags"` // whether it matches TCP flags
}

func newSelection(c *core) *selection {
	s := &selection{core: c}
	s.entries = s.collectEntries()
	s.punts = newPersistentRules(c, "punt/", keyEdges, "switch takes no rules for first packets; connections from there go directly", func(e edge) ([]network.Rule, error) {
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

// load reads the configuration and the edges. The entries have been loaded before.
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
	s.config, s.whitelist = cfg, sortByAge(s.entries.Values())
	s.refresh()
	return nil
}

// refresh publishes a new snapshot for the packet-in handler. The lock is held, or the
// service is not shared yet.
func (s *selection) refresh() {
	v := &snapshot{enabled: s.config.Enabled, whitelist: s.whitelist, agents: map[netip.Addr]bool{}, sessionPorts: map[netip.Addr]control.PortRange{}}
	for _, a := range s.agents.List() {
		st := a.State()
		for _, addr := range st.Addrs {
			v.agents[addr] = true
			if st.Status.SessionPorts.First > 0 {
				v.sessionPorts[addr] = st.Status.SessionPorts
			}
		}
	}
	s.snapshot.Store(v)
}

// fromSessionPort reports whether a segment comes from one of an agent's session ports.
func (v *snapshot) fromSessionPort(h *packet.Headers) bool {
	r, ok := v.sessionPorts[h.Src]
	return ok && r.First <= h.SrcPort && h.SrcPort <= r.Last
}

// find returns the entry that allows a connection, or nil.
func (v *snapshot) find(f flow) *Entry {
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
		wanted[dpid.String()] = edge{dpid, s.matchesTCPFlags(dpid)}
	}
	s.punts.apply(ctx, wanted, network.ApplyOptions{})
}

// update applies a change of the guarded state, and then updates the switches.
func (s *selection) update(ctx context.Context, change func()) {
	s.mu.Lock()
	change()
	s.refresh()
	s.mu.Unlock()
	s.applyPunts(ctx) // applied before the caller gets its answer; the reconciler retries failed changes
	s.wake()
}

// setConfig stores and applies a changed configuration. It returns Faults if the change is
// invalid.
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
	s.update(ctx, func() {
		s.config = cfg
		s.publish("config.changed", cfg)
	})
	return cfg, nil
}

// collectEntries returns the collection of whitelist entries, keyed by identifier.
func (s *selection) collectEntries() *kit.Collection[Entry] {
	return kit.NewCollection(kit.Options[Entry]{
		Kind: kit.Kind[Entry]{
			Singular: "entry", Plural: "entries of the whitelist", Prefix: keyWhitelist, Event: "whitelist", MaxItems: maxEntries,
			Conflicts: func(id string, e Entry, all []kit.Item[Entry]) error {
				for _, x := range all {
					if x.Name != id && x.Value.overlaps(&e) {
						return fmt.Errorf("entry %s allows the same connections at that time: %w", x.Name, kit.ErrExists)
					}
				}
				return nil
			},
		},
		Store: s.store, Log: s.log, Publish: s.publish, Changed: s.entriesChanged,
	})
}

// entriesChanged applies the changed whitelist to the switches. Sessions whose entry was
// removed continue.
func (s *selection) entriesChanged(ctx context.Context, _ []kit.Change[Entry]) {
	s.update(ctx, func() { s.whitelist = sortByAge(s.entries.Values()) })
}

// sortByAge sorts entries by the time at which they were added, because the oldest matching entry
// decides.
func sortByAge(entries []Entry) Whitelist {
	slices.SortFunc(entries, func(a, b Entry) int { return a.Added.Compare(b.Added) })
	return entries
}

// parseEntry builds an entry from a request. An entry that replaces another keeps the position of
// that entry in the whitelist.
func (s *selection) parseEntry(id string, spec EntrySpec) (string, Entry, error) {
	e, faults := spec.Parse()
	if len(faults) == 0 {
		faults = e.checkExpired(time.Now())
	}
	e.ID, e.Added = id, time.Now().UTC()
	if id == "" {
		e.ID = agentapi.NewSessionID().String()[:12]
	}
	if was, ok := s.entries.Item(id); ok {
		e.Added = was.Value.Added
	}
	return e.ID, e, faults.Err()
}

// EntryInfo is a whitelist entry as the list shows it.
type EntryInfo struct {
	Entry
	Notes []string `json:"notes,omitempty" doc:"Connections of the entry that are not carried although nothing is wrong, because another service handles their packets"`
}

// showEntries returns the entries as the API shows them.
func (s *selection) showEntries(all []kit.Item[Entry]) []EntryInfo {
	out, matches := make([]EntryInfo, len(all)), make([][]openflow.Match, len(all))
	for i, e := range sortByAge(values(all)) {
		out[i].Entry = e
		for _, p := range punts(&e) {
			if m, err := p.match(false); err == nil {
				matches[i] = append(matches[i], m)
			}
		}
	}
	for i, over := range s.rules.Shadowed(rule.StageSelect, rule.SelectConnection, matches) {
		out[i].Notes = rule.Notes(over, "those are not carried")
	}
	return out
}

func values(all []kit.Item[Entry]) (out []Entry) {
	for _, x := range all {
		out = append(out, x.Value)
	}
	return out
}
