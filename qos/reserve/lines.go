package reserve

import (
	"cmp"
	"slices"
)

// Line is what the book says of one link.
type Line struct {
	Link Link
	Use
	// Promised is the sum of the promises, Unseen the part of it that is not yet
	// part of Used.
	Promised, Unseen, Available uint64
	Keys                        []Key
}

// Lines lists the links on which something is promised.
func (b *Book) Lines() []Line {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Line, 0, len(b.links))
	for l, a := range b.links {
		u := b.use(l)
		line := Line{Link: l, Use: u, Promised: a.sums.promised, Available: b.available(l, u, Key{})}
		for k, e := range a.entries {
			line.Keys = append(line.Keys, k)
			line.Unseen += e.rates[l] - e.own(l)
		}
		slices.SortFunc(line.Keys, func(x, y Key) int { return cmp.Or(cmp.Compare(x.Owner, y.Owner), cmp.Compare(x.ID, y.ID)) })
		out = append(out, line)
	}
	slices.SortFunc(out, func(x, y Line) int { return x.Link.Compare(y.Link) })
	return out
}
