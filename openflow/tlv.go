package openflow

// tlvShape describes the layout of a family of structures that contain their own length.
type tlvShape struct {
	what   string
	header int  // smallest size of an element in bytes
	lenAt  int  // offset of the length
	wide   bool // the length has 16 bits instead of 8
	add    int  // bytes of an element that its length does not count
	padded bool // elements are followed by padding to a multiple of eight
	whole8 bool // the length itself must be a multiple of eight
}

var (
	oxmShape         = tlvShape{what: "oxm", header: 4, lenAt: 3, add: 4}
	actionShape      = tlvShape{what: "action", header: 8, lenAt: 2, wide: true, whole8: true}
	instructionShape = tlvShape{what: "instruction", header: 8, lenAt: 2, wide: true, whole8: true}
	bucketShape      = tlvShape{what: "bucket", header: 16, wide: true, whole8: true}
	extBucketShape   = tlvShape{what: "bucket", header: extBucketHeader, wide: true, whole8: true}
	bandShape        = tlvShape{what: "meter band", header: 16, lenAt: 2, wide: true, whole8: true}
	helloShape       = tlvShape{what: "hello element", header: 4, lenAt: 2, wide: true, padded: true}
	propertyShape    = tlvShape{what: "property", header: 4, lenAt: 2, wide: true, padded: true}
	featureIDShape   = tlvShape{what: "feature id", header: 4, lenAt: 2, wide: true}

	queueShape         = tlvShape{what: "queue", header: queueHeader, lenAt: 8, wide: true, whole8: true}
	queuePropertyShape = tlvShape{what: "queue property", header: 8, lenAt: 2, wide: true, whole8: true}
	flowStatsShape     = tlvShape{what: "flow stats", header: flowStatsHeader + 8, wide: true}
	groupStatsShape    = tlvShape{what: "group stats", header: groupStatsHeader, wide: true}
	groupDescShape     = tlvShape{what: "group desc", header: 8, wide: true}
	meterStatsShape    = tlvShape{what: "meter stats", header: meterStatsHeader, lenAt: 4, wide: true}
	meterConfigShape   = tlvShape{what: "meter config", header: 8, wide: true}
	tableFeaturesShape = tlvShape{what: "table features", header: tableFeaturesHeader, wide: true, whole8: true}
)

// A tlvIter walks over consecutive elements in place. It is the only walker of
// variable-length structures in this package, and so the only place where
// their bounds are checked: an element shorter than its header or longer than
// the rest ends the walk with an error.
type tlvIter struct {
	shape *tlvShape
	all   []byte
	next  int    // offset of the next element
	elem  []byte // the element just found, without its padding
	at    int    // its offset
	err   error
}

func iterate(b []byte, shape *tlvShape) tlvIter { return tlvIter{shape: shape, all: b} }

// step moves to the next element. It returns false at the end and on error.
func (t *tlvIter) step() bool {
	s := t.shape
	rest := t.all[t.next:]
	if len(rest) == 0 || t.err != nil {
		return false
	}
	t.at = t.next
	if len(rest) < s.header {
		t.err = &DecodeError{What: s.what, Offset: t.at, Err: ErrTooShort, Detail: plural(len(rest), "byte") + " left, header needs " + plural(s.header, "byte")}
		return false
	}
	n := int(rest[s.lenAt])
	if s.wide {
		n = int(be.Uint16(rest[s.lenAt:]))
	}
	n += s.add
	size := n
	if s.padded {
		size = roundUp8(n)
	}
	if n < s.header || size > len(rest) || s.whole8 && n&7 != 0 {
		t.err = s.lengthError(t.at, n, len(rest))
		return false
	}
	t.elem = rest[:n:n]
	t.next += size
	return true
}

func (s *tlvShape) lengthError(at, n, rest int) error {
	switch {
	case n < s.header:
		return badLength(s.what, at, "%d, below the header's %d", n, s.header)
	case n > rest:
		return badLength(s.what, at, "%d, beyond the %d that are left", n, rest)
	case s.whole8 && n&7 != 0:
		return badLength(s.what, at, "%d, not a multiple of 8", n)
	default:
		return badLength(s.what, at, "%d, padding to a multiple of 8 exceeds the %d that are left", n, rest)
	}
}
