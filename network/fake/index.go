package fake

import (
	"slices"

	"github.com/sluice-net/sluice/openflow"
)

// index finds the entry for a packet without looking at each. Entries whose matches look
// at the same bits of the same fields have one shape; those bits of a packet are the key of
// the one entry of the shape that can be for it.
type index struct {
	shapes map[uint8][]*shape // by table
	n      int                // entries so far: of two with one priority the first decides
}

// shape is what entries look at, and the best entry for each key.
type shape struct {
	bits []openflow.OXM // Field and Mask
	best map[string]ranked
	most uint16 // highest priority
}

// ranked is an entry with its place among all.
type ranked struct {
	*Entry
	place int
}

func (r ranked) above(o ranked) bool {
	return o.Entry == nil || r.Priority > o.Priority || r.Priority == o.Priority && r.place < o.place
}

func indexOf(entries []*Entry) *index {
	x := &index{shapes: map[uint8][]*shape{}}
	for _, e := range entries {
		x.insert(e)
	}
	return x
}

// insert adds an entry that is the last of all.
func (x *index) insert(e *Entry) {
	var bits []openflow.OXM
	var key []byte
	for o := range e.Match.Fields() {
		if !o.Masked {
			o.Mask = exact
		}
		bits = append(bits, openflow.OXM{Field: o.Field, Mask: o.Mask})
		key = append(key, o.Value[:]...)
	}
	s := x.shape(e.Table, bits)
	r := ranked{e, x.n}
	x.n++
	if r.above(s.best[string(key)]) {
		s.best[string(key)] = r
	}
	s.most = max(s.most, e.Priority)
}

var exact = func() (mask [16]byte) {
	for i := range mask {
		mask[i] = 0xff
	}
	return mask
}()

func (x *index) shape(table uint8, bits []openflow.OXM) *shape {
	for _, s := range x.shapes[table] {
		if slices.Equal(s.bits, bits) {
			return s
		}
	}
	s := &shape{bits: bits, best: map[string]ranked{}}
	x.shapes[table] = append(x.shapes[table], s)
	return s
}

// packetFields are the values of a packet's fields, nil for those that it has not.
type packetFields [openflow.FieldTCPFlags + 1]*[16]byte

// find is the entry of a table for a packet, nil if there is none.
func (x *index) find(table uint8, p Packet) *Entry {
	var fields packetFields
	var values [len(fields)][16]byte
	n := 0
	for o := range p.fields.Fields() {
		values[n] = o.Value
		fields[o.Field] = &values[n]
		n++
	}
	var best ranked
	var room [16 * len(fields)]byte
	for _, s := range x.shapes[table] {
		if best.Entry != nil && s.most < best.Priority {
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

// key are the bits of a packet that the shape looks at; false if it lacks a field.
func (s *shape) key(fields *packetFields, key []byte) ([]byte, bool) {
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
