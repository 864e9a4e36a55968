package openflow

import (
	"bytes"
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"strings"
	"unsafe"
)

// Match is a set of match fields that selects packets. It is immutable and canonical: the fields
// are in the order of the table, and fields that match everything are left out, so two matches
// with the same meaning are equal under ==. The zero value matches every packet.
//
// A decoded match also keeps fields that this package does not know, unchanged; they are encoded
// again and take part in comparisons.
type Match struct {
	wire string // the fields as on the wire
}

// NewMatch returns a match of the fields, in any order. It refuses a field that is given twice,
// a value or mask that the field cannot hold, and a field without its prerequisites. A field
// whose mask is zero matches everything and is left out.
func NewMatch(oxms ...OXM) (Match, error) {
	var m matchBuilder
	for i := range oxms {
		if err := oxms[i].check(); err != nil {
			return Match{}, err
		}
		if !m.put(&oxms[i]) {
			return Match{}, fmt.Errorf("openflow: %w: %s is given twice", ErrMatch, oxms[i].Field)
		}
	}
	if err := m.checkPrerequisites(); err != nil {
		return Match{}, err
	}
	return m.match(nil), nil
}

// MustMatch is NewMatch for fields that are known to be valid. It panics on error.
func MustMatch(oxms ...OXM) Match {
	m, err := NewMatch(oxms...)
	if err != nil {
		panic(err)
	}
	return m
}

// Get returns the field's value and mask, and whether the match has it.
func (m Match) Get(f Field) (OXM, bool) {
	for o := range m.Fields() {
		if o.Field == f {
			return o, true
		}
	}
	return OXM{}, false
}

// Fields returns an iterator over the known fields in the order of the table.
func (m Match) Fields() iter.Seq[OXM] {
	return m.oxms().All()
}

// oxms returns the fields without copying them. The result must not be written
// to, and must not leave the package.
func (m Match) oxms() OXMs { return unsafe.Slice(unsafe.StringData(m.wire), len(m.wire)) }

// With returns m with more fields. A field that m names already is replaced. Fields of m that this
// package does not know are left out.
func (m Match) With(oxms ...OXM) (Match, error) {
	all := slices.Clone(oxms)
	for o := range m.Fields() {
		if !slices.ContainsFunc(oxms, func(n OXM) bool { return n.Field == o.Field }) {
			all = append(all, o)
		}
	}
	return NewMatch(all...)
}

// IsZero reports whether m matches every packet.
func (m Match) IsZero() bool { return m.wire == "" }

// Covers reports whether m matches every packet that o matches. It decides which entries a
// non-strict deletion selects. It ignores fields that this package does not know.
func (m Match) Covers(o Match) bool {
	for want := range m.Fields() {
		have, ok := o.Get(want.Field)
		if !ok {
			return false
		}
		mask := want.fullMask()
		if !mask.within(have.fullMask()) || load(&have.Value).and(mask) != load(&want.Value) {
			return false
		}
	}
	return true
}

// Overlaps reports whether a packet may exist that both match: the fields that both have do not
// contradict each other. It ignores fields that this package does not know.
func (m Match) Overlaps(o Match) bool {
	for a := range m.Fields() {
		b, ok := o.Get(a.Field)
		if !ok {
			continue
		}
		mask := a.fullMask().and(b.fullMask())
		if load(&a.Value).and(mask) != load(&b.Value).and(mask) {
			return false
		}
	}
	return true
}

// matchBuilder collects fields. given and present have one bit for each Field.
type matchBuilder struct {
	given   uint64 // fields that were put
	present uint64 // fields that constrain packets
	place   [numFields]uint8
	n       int
	oxms    [numFields]OXM // in the order they were put; place says where
}

// put adds a field of the table. It returns false if the field was already added.
func (m *matchBuilder) put(o *OXM) bool {
	bit := uint64(1) << o.Field
	if m.given&bit != 0 {
		return false
	}
	m.given |= bit
	m.oxms[m.n] = *o
	if !m.oxms[m.n].normalize() {
		m.present |= bit
		m.place[o.Field] = uint8(m.n)
		m.n++
	}
	return true
}

func (m *matchBuilder) get(f Field) *OXM { return &m.oxms[m.place[f]] }

// all yields the fields in the order of the table.
func (m *matchBuilder) all(yield func(*OXM) bool) {
	for rest := m.present; rest != 0; rest &= rest - 1 {
		if !yield(m.get(Field(bits.TrailingZeros64(rest)))) {
			return
		}
	}
}

func (m *matchBuilder) checkPrerequisites() error {
	for o := range m.all {
		for i := range fields[o.Field].needs {
			need := &fields[o.Field].needs[i]
			if m.present&(1<<need.field) == 0 || !need.holds(m.get(need.field)) {
				return fmt.Errorf("openflow: %w: %v needs %v", ErrMatch, *o, *need)
			}
		}
	}
	return nil
}

func (p *prereq) holds(o *OXM) bool {
	if p.bits != 0 {
		return o.Uint()&p.bits == p.bits
	}
	return len(p.values) == 0 || !o.Masked && slices.Contains(p.values, o.Uint())
}

// String describes the prerequisite, as in "eth_type=0x800 or 0x86dd".
func (p prereq) String() string {
	if p.bits != 0 {
		return fmt.Sprintf("%v with the bits %#x", p.field, p.bits)
	}
	if len(p.values) == 0 {
		return p.field.Name()
	}
	format := "%d"
	if fields[p.field].format == asHex {
		format = "%#x"
	}
	values := make([]string, len(p.values))
	for i, v := range p.values {
		values[i] = fmt.Sprintf(format, v)
	}
	return p.field.Name() + "=" + strings.Join(values, " or ")
}

// match returns the canonical form; unknown fields follow the known ones.
func (m *matchBuilder) match(unknown [][]byte) Match {
	var buf [256]byte
	wire := buf[:0]
	for o := range m.all {
		wire = appendOXM(wire, o)
	}
	slices.SortFunc(unknown, bytes.Compare)
	for _, u := range unknown {
		wire = append(wire, u...)
	}
	return Match{wire: string(wire)}
}

// appendOXM appends the field as on the wire.
func appendOXM(b []byte, o *OXM) []byte {
	info := &fields[o.Field]
	n := int(info.size)
	class, size := uint16(classBasic), n
	if info.exp != 0 {
		class, size = classExperimenter, size+4
	}
	kind := info.num << 1
	if o.Masked {
		kind |= 1
		size += n
	}
	b = append(b, byte(class>>8), byte(class), kind, byte(size))
	if info.exp != 0 {
		b = put32(b, info.exp)
	}
	b = append(b, o.Value[:n]...)
	if o.Masked {
		b = append(b, o.Mask[:n]...)
	}
	return b
}

// append appends the match as struct ofp_match, padding included.
func (m Match) append(b []byte) []byte { return appendMatch(b, m.wire) }

func appendMatch[T string | []byte](b []byte, wire T) []byte {
	start := len(b)
	b = append(b, 0, 1, 0, 0)
	b = append(b, wire...)
	setLen16(b, start, 2)
	return padTo8(b, start)
}

// splitMatch checks a struct ofp_match at the start of b. It returns the match's fields and the
// bytes after its padding.
func splitMatch(b []byte) (oxms, rest []byte, err error) {
	if len(b) < 8 {
		return nil, nil, tooShort("match", len(b), 8)
	}
	if t := be.Uint16(b); t != 1 {
		return nil, nil, &DecodeError{What: "match", Err: ErrType, Detail: fmt.Sprintf("%d, want 1 (OXM)", t)}
	}
	n := int(be.Uint16(b[2:]))
	if n < 4 || roundUp8(n) > len(b) {
		return nil, nil, badLength("match", 2, "%d, want 4 to %d", n, len(b))
	}
	return b[4:n:n], b[roundUp8(n):], nil
}

// parseMatch decodes a struct ofp_match at the start of b and returns the bytes after it. If old
// is the same match, parseMatch returns old without allocating.
func parseMatch(b []byte, old Match) (_ Match, rest []byte, err error) {
	oxms, rest, err := splitMatch(b)
	if err != nil {
		return Match{}, nil, err
	}
	if old.wire == string(oxms) {
		return old, rest, nil
	}
	m, err := OXMs(oxms).Match()
	return m, rest, err
}

// OXMs is a list of match fields as on the wire, read in place.
type OXMs []byte

// All yields the fields that this package knows, in the order on the wire, up
// to the first that is malformed.
func (b OXMs) All() iter.Seq[OXM] {
	return func(yield func(OXM) bool) {
		for it := iterate(b, &oxmShape); it.step(); {
			var o OXM
			known, err := o.decode(it.elem, it.at)
			if err != nil || known && !yield(o) {
				return
			}
		}
	}
}

// Get returns the first occurrence of the field.
func (b OXMs) Get(f Field) (OXM, bool) {
	for o := range b.All() {
		if o.Field == f {
			return o, true
		}
	}
	return OXM{}, false
}

// Match returns the list as a match. It does not check prerequisites, because a switch may hold
// such matches. A field that occurs twice or has the wrong size is an error.
func (b OXMs) Match() (Match, error) {
	if b.canonical() {
		return Match{wire: string(b)}, nil
	}
	var m matchBuilder
	var unknown [][]byte
	it := iterate(b, &oxmShape)
	for it.step() {
		var o OXM
		known, err := o.decode(it.elem, it.at)
		if err != nil {
			return Match{}, err
		}
		if !known {
			unknown = append(unknown, it.elem)
			continue
		}
		if !m.put(&o) {
			return Match{}, badValue("oxm", it.at, "%s occurs twice", o.Field)
		}
	}
	if it.err != nil {
		return Match{}, it.err
	}
	return m.match(unknown), nil
}

// canonical reports whether the list has the form of Match: known fields only, in order, each in
// its canonical form. Most switches send this form.
func (b OXMs) canonical() bool {
	last := -1
	it := iterate(b, &oxmShape)
	for it.step() {
		var o OXM
		known, err := o.decode(it.elem, it.at)
		if err != nil || !known || int(o.Field) <= last {
			return false
		}
		if o.Masked {
			if before := o; o.normalize() || o != before {
				return false
			}
		}
		last = int(o.Field)
	}
	return it.err == nil
}

// decode reads one element. It returns false for a field that is not in the
// table. at is the element's offset, for errors.
func (o *OXM) decode(b []byte, at int) (known bool, err error) {
	class, num, masked := be.Uint16(b), b[2]>>1, b[2]&1 != 0
	payload := b[4:]
	var exp uint32
	if class == classExperimenter {
		if len(payload) < 4 {
			return false, badLength("oxm", at, "%d, an experimenter field needs at least 8", len(b))
		}
		exp, payload = be.Uint32(payload), payload[4:]
	}
	f, known := lookupField(class, num, exp)
	if !known {
		return false, nil
	}
	n := int(fields[f].size)
	want := n
	if masked {
		want *= 2
	}
	if len(payload) != want {
		return false, badLength("oxm", at, "%s has %s, want %d", f, plural(len(payload), "byte"), want)
	}
	*o = OXM{Field: f, Masked: masked}
	copy(o.Value[:], payload[:n])
	if masked {
		copy(o.Mask[:], payload[n:])
	}
	if !load(&o.Value).within(fieldMasks[f]) {
		return false, tooWide(f, at, payload[:n])
	}
	return true, nil
}

// tooWide returns the error for a value that is wider than its field. It is a separate function so
// that decoding does not allocate.
func tooWide(f Field, at int, value []byte) error {
	return badValue("oxm", at, "%s=%#x is wider than %d bits", f, value, f.Bits())
}
