package reserve

import (
	"cmp"
	"maps"
	"slices"
)

// Reservation describes the promises on one direction of a link, in bits per second.
type Reservation struct {
	Link      string `json:"link" doc:"Port by which it leaves its switch" example:"0000000000000001/2"`
	Capacity  uint64 `json:"capacity_bits_per_second"`
	Used      uint64 `json:"used_bits_per_second" doc:"As measured"`
	Promised  uint64 `json:"promised_bits_per_second" doc:"Sum of the promises"`
	Unseen    uint64 `json:"unseen_bits_per_second" doc:"The part of it that measurements do not show yet"`
	Available uint64 `json:"available_bits_per_second" doc:"What can still be promised"`
	For       []Key  `json:"for" doc:"What it is promised for"`
}

// Reservations returns the links on which something is promised.
func (b *Book) Reservations() []Reservation {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := []Reservation{}
	for _, l := range slices.SortedFunc(maps.Keys(b.links), Link.Compare) {
		u, a := b.use(l), b.links[l]
		r := Reservation{Link: l.String(), Capacity: u.Capacity, Used: u.Used, Promised: a.sums.promised, Available: b.available(l, u, Key{}, false)}
		for k, e := range a.entries {
			if e.rates[l] > 0 {
				r.For = append(r.For, k)
			}
			r.Unseen += e.rates[l] - e.countedRate(l)
		}
		if len(r.For) == 0 { // only yielding traffic
			continue
		}
		slices.SortFunc(r.For, Key.compare)
		out = append(out, r)
	}
	return out
}

func (k Key) compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Owner, o.Owner), cmp.Compare(k.ID, o.ID))
}
