package plugin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/service"
	"github.com/sluice-net/sluice/sos/agentapi"
)

// collectEntries returns the collection of the whitelist's entries, by their identifiers.
func (s *selection) collectEntries() *service.Collection[Entry] {
	return service.NewCollection(service.Options[Entry]{
		Kind: service.Kind[Entry]{
			Noun: "entry", Nouns: "entries of the whitelist", Prefix: keyWhitelist, Event: "whitelist", Most: maxEntries,
			Contradicts: func(id string, e Entry, all []service.Item[Entry]) error {
				for _, x := range all {
					if x.Name != id && x.Value.same(&e) {
						return fmt.Errorf("entry %s allows the same connections at that time: %w", x.Name, service.ErrExists)
					}
				}
				return nil
			},
		},
		Store: s.store, Log: s.log, Publish: s.publish, Changed: s.entriesChanged,
	})
}

// entriesChanged brings the whitelist into the switches. Sessions that an entry allowed
// which has gone go on.
func (s *selection) entriesChanged(ctx context.Context, _ []service.Change[Entry]) {
	s.changed(ctx, func() { s.whitelist = inOrder(s.entries.Values()) })
}

// inOrder sorts entries by when they were added, which decides.
func inOrder(entries []Entry) Whitelist {
	slices.SortFunc(entries, func(a, b Entry) int { return a.Added.Compare(b.Added) })
	return entries
}

// parseEntry makes an entry of a request: one that takes the place of another stands where
// that stood.
func (s *selection) parseEntry(id string, spec EntrySpec) (string, Entry, error) {
	e, faults := spec.Parse()
	if len(faults) == 0 {
		faults = e.over(time.Now())
	}
	e.ID, e.Added = id, time.Now().UTC()
	if id == "" {
		e.ID = agentapi.NewSessionID().String()[:12]
	}
	if was, there := s.entries.Item(id); there {
		e.Added = was.Value.Added
	}
	return e.ID, e, faults.Err()
}

// EntryInfo is a whitelist entry as the list shows it.
type EntryInfo struct {
	Entry
	Notes []string `json:"notes,omitempty" doc:"Which of its connections are not carried though nothing is wrong: those of which another service has the packets"`
}

// showEntries is how the API shows entries.
func (s *selection) showEntries(all []service.Item[Entry]) []EntryInfo {
	out, matches := make([]EntryInfo, len(all)), make([][]openflow.Match, len(all))
	for i, e := range inOrder(values(all)) {
		out[i].Entry = e
		for _, p := range punts(&e) {
			if m, err := p.match(false); err == nil {
				matches[i] = append(matches[i], m)
			}
		}
	}
	for i, over := range s.rules.Overruled(rule.StageSelect, rule.SelectConnection, matches) {
		out[i].Notes = rule.Notes(over, "those are not carried")
	}
	return out
}

func values(all []service.Item[Entry]) (out []Entry) {
	for _, x := range all {
		out = append(out, x.Value)
	}
	return out
}
