package bandwidth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/store"
)

const flowPrefix = "qos/flows/"

// stored is a flow as the store keeps it.
type stored struct {
	Header     header          `json:"header"`
	Definition string          `json:"definition"`
	Rate       uint64          `json:"rate"`
	Reverse    uint64          `json:"reverse"`
	Idle       time.Duration   `json:"idle"`
	Once       bool            `json:"once,omitempty"`
	From       network.PortRef `json:"from"`
	To         network.PortRef `json:"to"`
	Device     netip.Addr      `json:"device,omitzero"`
	Since      time.Time       `json:"since"`
	State      State           `json:"state"`
	Reason     string          `json:"reason,omitempty"`
	Hops       []network.Hop   `json:"hops"`
	Accepted   time.Time       `json:"accepted,omitzero"`
	Moves      int             `json:"moves"`
	// HoldBack, Number and Unmetered are about the meters that hold it to its promise.
	HoldBack  bool             `json:"hold_back,omitempty"`
	Number    int              `json:"number,omitempty"`
	Unmetered [directions]bool `json:"unmetered,omitzero"`
	// Meters are what the flow passed, if it is one of best effort.
	Meters []storedMeter `json:"meters,omitempty"`
}

type storedMeter struct {
	Link network.PortRef `json:"link"`
	Kbit uint32          `json:"kbit"`
}

// save stores a flow's placement. f.changing is locked.
func (s *Service) save(f *flow) {
	s.mu.Lock()
	r := stored{
		Header: f.header, Definition: f.definition, Rate: f.rate, Reverse: f.reverse, Idle: f.idle, Once: f.once, From: f.from, To: f.to, Device: f.device, Since: f.since,
		State: f.state, Reason: f.reason, Hops: f.path.Hops, Accepted: f.accepted, Moves: f.moves,
		HoldBack: f.holdBack, Number: f.number, Unmetered: f.unmetered,
	}
	s.mu.Unlock()
	if r.State == StateBestEffort {
		for _, at := range links(network.Path{Hops: r.Hops}) {
			r.Meters = append(r.Meters, storedMeter{at, s.guard.kbit(at)})
		}
	}
	ctx, cancel := s.cleanUp()
	defer cancel()
	if err := store.PutJSON(ctx, s.store, flowPrefix+f.id, r); err != nil {
		s.log.Warn("a placement is not stored: a restart would forget it", "flow", f.header, "error", err)
	}
}

// erase removes a flow's placement from the store.
func (s *Service) erase(ctx context.Context, f *flow) {
	if err := s.store.Delete(ctx, flowPrefix+f.id); err != nil && !errors.Is(err, store.ErrNotFound) {
		s.log.Warn("a placement stays stored", "flow", f.header, "error", err)
	}
}

// load reads definitions and placements, and makes the promises again.
func (s *Service) load(ctx context.Context) error {
	if err := s.Definitions.Load(ctx, s.fixed); err != nil {
		return err
	}
	flows, err := s.store.List(ctx, flowPrefix)
	if err != nil {
		return err
	}
	for _, e := range flows {
		if err := s.revive(ctx, strings.TrimPrefix(e.Key, flowPrefix), e.Value); err != nil {
			return fmt.Errorf("stored flow %s: %w", e.Key, err)
		}
	}
	return nil
}

// revive enters a flow of before the start, if it is still critical. The rules of one that
// nobody declares are removed.
func (s *Service) revive(ctx context.Context, id string, value []byte) error {
	var r stored
	if err := json.Unmarshal(value, &r); err != nil {
		return err
	}
	if _, critical := s.Definitions.Item(r.Definition); !critical {
		return s.store.Delete(ctx, flowPrefix+id)
	}
	if len(r.Hops) == 0 || r.State != StateAccepted && r.State != StateBestEffort {
		return fmt.Errorf("state %q with a path of %d switches", r.State, len(r.Hops))
	}
	f := &flow{
		id: id, header: r.Header, definition: r.Definition, rate: r.Rate, reverse: r.Reverse, idle: r.Idle, once: r.Once, from: r.From, to: r.To,
		device: r.Device, since: r.Since, state: r.State, reason: r.Reason, path: network.Path{Hops: r.Hops}, accepted: r.Accepted, moves: r.Moves,
		holdBack: r.HoldBack, unmetered: r.Unmetered,
	}
	f.ctx, f.cancel = context.WithCancel(s.tasks.Context())
	s.mu.Lock()
	f.number = s.numbers.take(r.Number)
	s.flows[f.header], s.byID[f.id] = f, f
	s.mu.Unlock()
	s.restore(f, placement{path: f.path, state: f.state})
	for _, m := range r.Meters {
		s.guard.revive(ctx, m.Link, m.Kbit)
	}
	return nil
}

// redeclare declares the rules of flows of before the start. Switches that are not
// connected yet are compared with them when they come, and keep what they have.
func (s *Service) redeclare(ctx context.Context) {
	each(s.all(), func(f *flow) {
		f.changing.Lock()
		defer f.changing.Unlock()
		if err := s.install(ctx, f, placement{path: f.path, state: f.state}, true); err != nil {
			s.log.Warn("a flow of before the start is not declared", "flow", f.header, "error", err)
		}
	})
}
