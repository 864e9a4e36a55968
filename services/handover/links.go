package handover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/store"
)

// keyLinks is the store's key of the network's links. A restarted controller compares the discovered
// links with the stored ones, to know when it has seen all of them.
const keyLinks = Name + "/links"

// linkEnds holds the two ends of a link.
type linkEnds struct{ From, To network.PortRef }

// knownLinks holds the stored links of the network. Its methods must not be called concurrently.
type knownLinks struct {
	store    store.Store
	log      *slog.Logger
	warnings lograte.Limit // limits log lines about a store that accepts no writes
	links    []linkEnds
}

// load reads the links that were stored before the start.
func (s *knownLinks) load(ctx context.Context) error {
	e, err := s.store.Get(ctx, keyLinks)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the stored links: %w", err)
	}
	if err := json.Unmarshal(e.Value, &s.links); err != nil {
		s.log.Warn("the stored links cannot be decoded", "error", err)
	}
	return nil
}

// save stores the links if they have changed. Links of a switch that is not connected at the
// moment are kept.
func (s *knownLinks) save(ctx context.Context, top *network.Topology) {
	var now []linkEnds
	for _, l := range top.Links {
		now = append(now, linkEnds{l.From, l.To})
	}
	for _, c := range s.links {
		if !top.Has(c.From.Switch) || !top.Has(c.To.Switch) {
			now = append(now, c)
		}
	}
	slices.SortFunc(now, func(a, b linkEnds) int { return a.From.Compare(b.From) })
	if slices.Equal(now, s.links) {
		return
	}
	if err := store.PutJSON(ctx, s.store, keyLinks, now); err != nil {
		if ctx.Err() == nil {
			s.warnings.Warn(s.log, "links cannot be stored; the next start will take longer", "error", err)
		}
		return
	}
	s.links = now
}

// complete reports whether the topology has all stored links. It returns false if none are stored.
func (s *knownLinks) complete(top *network.Topology) bool {
	for _, c := range s.links {
		if l, ok := top.LinkFrom(c.From); !ok || l.To != c.To {
			return false
		}
	}
	return len(s.links) > 0
}
