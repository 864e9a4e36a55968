package fake

import (
	"slices"

	"github.com/sluice-net/sluice/openflow"
)

// matchIndex finds the entry for a packet without comparing all entries. Entries whose matches
// use the same bits of the same fields have the same shape. The packet's values of these bits
// are the key of the only entry of the shape that can match it.
type matchIndex struct {
	shapes map[uint8][]*matchShape // by table
	n      int                     // number of inserted entries
}

// matchShape holds the bits that a set of entries matches, and the best entry for each key.
type matchShape struct {
	bits        []openflow.OXM // Field and Mask
	best        map[string]rankedEntry
	maxPriority uint16 // highest priority
}

// rankedEntry is an entry and its index in the order of insertion. Of two entries with the same
// priority the one that was inserted first decides.
type rankedEntry struct {
	*Entry
	place int
}

func (r rankedEntry) above(o rankedEntry) bool {
	return o.Entry == nil || r.Priority > o.Priority || r.Priority == o.Priority && r.place < o.place
}

func indexOf(entries []*Entry) *matchIndex {
	x := &matchIndex{shapes: map[uint8][]*matchShape{}}
	for _, e := range entries {
		x.insert(e)
	}
	return x
}

// insert adds an entry after all others.
func (x *matchIndex) insert(e *Entry) {
	var bits []openflow.OXM
	var key []byte
	for o := range e.Match.Fields() {
		if !o.Masked {
			o.Mask = exactMask
		}
		bits = append(bits, openflow.OXM{Field: o.Field, Mask: o.Mask})
		key = append(key, o.Value[:]...)
	}
	s := x.shape(e.Table, bits)
	r := rankedEntry{e, x.n}
	x.n++
	if r.above(s.best[string(key)]) {
		s.best[string(key)] = r
	}
	s.maxPriority = max(s.maxPriority, e.Priority)
}

var exactMask = func() (mask [16]byte) {
	for i := range mask {
		mask[i] = 0xff
	}
	return mask
}()

func (x *matchIndex) shape(table uint8, bits []openflow.OXM) *matchShape {
	for _, s := range x.shapes[table] {
		if slices.Equal(s.bits, bits) {
			return s
		}
	}
	s := &matchShape{bits: bits, best: map[string]rankedEntry{}}
	x.shapes[table] = append(x.shapes[table], s)
	return s
}

// packetFields holds the values of a packet's fields, nil for those that it lacks.
type packetFields [openflow.FieldTCPFlags + 1]*[16]byte

// find returns the entry of a table for a packet, or nil.
func (x *matchIndex) find(table uint8, p Packet) *Entry {
	var fields packetFields
	var values [len(fields)][16]byte
	n := 0
	for o := range p.fields.Fields() {
		values[n] = o.Value
		fields[o.Field] = &values[n]
		n++
	}
	var best rankedEntry
	var room [16 * len(fields)]byte
	for _, s := range x.shapes[table] {
		if best.Entry != nil && s.maxPriority < best.Priority {
			continue
		}
		if key, ok := s.key(&fields, room[:0]); ok {
			if r, ok := s.best[string(key)]; ok && r.above(best) {
				best = r
			}
		}
	}
	return best.Entry
}

// key appends the packet's values of the shape's bits, and returns false if the packet lacks a
// field.
func (s *matchShape) key(fields *packetFields, key []byte) ([]byte, bool) {
	for i := range s.bits {
		v := fields[s.bits[i].Field]
		if v == nil {
			return nil, false
		}
		for j, b := range v {
			key = append(key, b&s.bits[i].Mask[j])
		}
	}
	return key, true
}
