package plugin

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

// keyLinks is where the links of the network are remembered, so that a controller
// that starts again sees when it knows all of them.
const keyLinks = Name + "/links"

// ends are those of a link.
type ends struct{ From, To network.PortRef }

// knownLinks are the links of the network as they are stored. Its methods are not to be
// called concurrently.
type knownLinks struct {
	store   store.Store
	log     *slog.Logger
	unsaved lograte.Limit // lines of a store that accepts no writes
	links   []ends
}

// recall reads the links of before the start.
func (s *knownLinks) recall(ctx context.Context) error {
	e, err := s.store.Get(ctx, keyLinks)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the links of before the start: %w", err)
	}
	if err := json.Unmarshal(e.Value, &s.links); err != nil {
		s.log.Warn("the links of before the start cannot be read", "error", err)
	}
	return nil
}

// remember stores the links if they have changed. Those of a switch that is
// not connected just now are kept.
func (s *knownLinks) remember(ctx context.Context, top *network.Topology) {
	var now []ends
	for _, l := range top.Links {
		now = append(now, ends{l.From, l.To})
	}
	for _, c := range s.links {
		if !top.Has(c.From.Switch) || !top.Has(c.To.Switch) {
			now = append(now, c)
		}
	}
	slices.SortFunc(now, func(a, b ends) int { return a.From.Compare(b.From) })
	if slices.Equal(now, s.links) {
		return
	}
	if err := store.PutJSON(ctx, s.store, keyLinks, now); err != nil {
		if ctx.Err() == nil {
			s.unsaved.Warn(s.log, "links cannot be remembered; the next start will take longer", "error", err)
		}
		return
	}
	s.links = now
}

// complete says whether all links are there that were before the start.
func (s *knownLinks) complete(top *network.Topology) bool {
	for _, c := range s.links {
		if l, ok := top.LinkFrom(c.From); !ok || l.To != c.To {
			return false
		}
	}
	return len(s.links) > 0
}
