package sos

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

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

// sortByAge sorts entries by the time they were added: the oldest that matches decides.
func sortByAge(entries []Entry) Whitelist {
	slices.SortFunc(entries, func(a, b Entry) int { return a.Added.Compare(b.Added) })
	return entries
}

// parseEntry builds an entry from a request. An entry that replaces another keeps its
// position.
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
