package frame

// The types of profile mf2, which the original release does not have: streams of chunks from one
// host to another, whose frames are numbered consecutively, and requests for paths.
const (
	TypeStreamData Type = 16 + iota
	TypeStreamAck
	TypeStreamQuery
	TypeStreamReset
	TypeHello
	TypePathRequest
	TypePathGrant
	TypePathConfirm
)

var mf2Names = map[Type]string{
	TypeStreamData: "stream data", TypeStreamAck: "stream acknowledgement", TypeStreamQuery: "stream query", TypeStreamReset: "stream reset",
	TypeHello: "hello", TypePathRequest: "path request", TypePathGrant: "path grant", TypePathConfirm: "path confirmation",
}

// StreamDataSize is the size in bytes of a StreamData frame without its payload.
const StreamDataSize = 22

// freshBit and blockedBit are the bits in a frame's number that encode StreamData.Fresh and
// StreamData.Blocked.
const freshBit, blockedBit = 1 << 63, 1 << 62

// Stream identifies a stream of a sender. It consists of the session, a random number of 48 bits
// that all streams with the same chunks share, and a count of restarts of 16 bits.
type Stream uint64

// NewStream returns the first stream of the session with this number.
func NewStream(drawn uint64) Stream { return Stream(drawn << 16) }

// Session returns the session's number, which all streams of the same chunks share.
func (s Stream) Session() uint64 { return uint64(s >> 16) }

// Next returns the stream that follows after a restart.
func (s Stream) Next() Stream { return s&^0xffff | (s+1)&0xffff }

// After reports whether the stream began later than another one of the same session.
func (s Stream) After(other Stream) bool { return int16(s-other) > 0 }

// StreamData carries a part of a stream's chunks. A chunk begins at the start of a frame with its
// number (64 bits), which increases within a session, and a RoutingHeader; it ends at the end of a
// frame.
type StreamData struct {
	Stream Stream
	// Number counts the stream's frames from zero. It has 62 bits.
	Number uint64
	// Fresh means that no frame of the stream has been acknowledged. A receiver that does not know
	// the stream may accept it as a new one. If Fresh is not set, such a receiver has lost its
	// state of the stream.
	Fresh bool
	// Blocked means that the sender would send more if the receiver's limit allowed it (as in RFC
	// 9000, section 19.13).
	Blocked bool
	// Payload is at most 65,535 bytes.
	Payload []byte
}

// Type implements Frame.
func (*StreamData) Type() Type { return TypeStreamData }

// AppendTo implements Frame.
func (d *StreamData) AppendTo(b []byte) []byte {
	number := d.Number &^ (freshBit | blockedBit)
	if d.Fresh {
		number |= freshBit
	}
	if d.Blocked {
		number |= blockedBit
	}
	b = be.AppendUint64(appendUint32s(b, uint32(TypeStreamData)), uint64(d.Stream))
	b = be.AppendUint16(be.AppendUint64(b, number), uint16(len(d.Payload)))
	return append(b, d.Payload...)
}

func (d *StreamData) parse(b []byte) error {
	if err := readUint64s(b, (*uint64)(&d.Stream), &d.Number); err != nil {
		return err
	}
	d.Fresh, d.Blocked, d.Number = d.Number&freshBit != 0, d.Number&blockedBit != 0, d.Number&^(freshBit|blockedBit)
	if b = b[16:]; len(b) < 2 || len(b) < 2+int(be.Uint16(b)) {
		return ErrShort
	}
	d.Payload = b[2 : 2+int(be.Uint16(b))]
	return nil
}

// StreamAck acknowledges the received frames of a stream.
type StreamAck struct {
	Stream Stream
	// Next is the first missing frame. The receiver has taken over all chunks that end at Taken or
	// before: the sender may forget them.
	Next, Taken uint64
	// Limit is the first frame for which the receiver has no room yet.
	Limit uint64
	// Ranges lists the received frames behind Next, in ascending order and with gaps between them.
	Ranges []Range
}

// Range is a run of consecutive frames. Its first frame is Skip frames behind the end of the range
// before it, or behind Next.
type Range struct{ Skip, Count uint16 }

// MaxRanges is the maximum number of ranges in an acknowledgement.
const MaxRanges = 64

// Type implements Frame.
func (*StreamAck) Type() Type { return TypeStreamAck }

// AppendTo implements Frame. It omits ranges beyond MaxRanges.
func (a *StreamAck) AppendTo(b []byte) []byte {
	b = appendUint32s(b, uint32(TypeStreamAck))
	for _, v := range []uint64{uint64(a.Stream), a.Next, a.Taken, a.Limit} {
		b = be.AppendUint64(b, v)
	}
	ranges := a.Ranges[:min(len(a.Ranges), MaxRanges)]
	b = append(b, byte(len(ranges)))
	for _, r := range ranges {
		b = be.AppendUint16(be.AppendUint16(b, r.Skip), r.Count)
	}
	return b
}

func (a *StreamAck) parse(b []byte) error {
	if err := readUint64s(b, (*uint64)(&a.Stream), &a.Next, &a.Taken, &a.Limit); err != nil {
		return err
	}
	if b = b[32:]; len(b) < 1 || len(b) < 1+4*int(b[0]) {
		return ErrShort
	}
	n := int(b[0])
	if n > MaxRanges {
		return ErrLayout
	}
	for b = b[1:]; len(a.Ranges) < n; b = b[4:] {
		a.Ranges = append(a.Ranges, Range{be.Uint16(b), be.Uint16(b[2:])})
	}
	return nil
}

// StreamQuery asks which frames of a stream have been received. The answer is a StreamAck or a
// StreamReset.
type StreamQuery struct{ Stream Stream }

// Type implements Frame.
func (*StreamQuery) Type() Type { return TypeStreamQuery }

// AppendTo implements Frame.
func (q *StreamQuery) AppendTo(b []byte) []byte {
	return be.AppendUint64(appendUint32s(b, uint32(TypeStreamQuery)), uint64(q.Stream))
}

func (q *StreamQuery) parse(b []byte) error { return readUint64s(b, (*uint64)(&q.Stream)) }

// ResetReason is the reason why a stream has ended.
type ResetReason uint32

// The reasons of a StreamReset.
const (
	// ResetUnknown means that the receiver does not know the stream, or no longer does.
	ResetUnknown ResetReason = 1 + iota
	// ResetTooLarge means that a chunk is larger than the receiver accepts.
	ResetTooLarge
	// ResetInvalid means that frames contradict each other.
	ResetInvalid
	// ResetRefused means that the receiver does not accept the stream.
	ResetRefused
	// ResetAbandoned comes from the sender, which has given up the stream.
	ResetAbandoned
	// ResetLater means that the receiver does not accept the chunks now. The path to it is still
	// valid.
	ResetLater
)

// StreamReset ends a stream. Chunks that have not been taken over are lost to the receiver.
type StreamReset struct {
	Stream Stream
	Reason ResetReason
	// Taken is the value of Taken in the receiver's last StreamAck. It is zero if the sender resets
	// the stream, or if the receiver does not know the stream.
	Taken uint64
}

// Type implements Frame.
func (*StreamReset) Type() Type { return TypeStreamReset }

// AppendTo implements Frame.
func (r *StreamReset) AppendTo(b []byte) []byte {
	b = appendUint32s(be.AppendUint64(appendUint32s(b, uint32(TypeStreamReset)), uint64(r.Stream)), uint32(r.Reason))
	return be.AppendUint64(b, r.Taken)
}

func (r *StreamReset) parse(b []byte) error {
	if err := readUint64s(b, (*uint64)(&r.Stream)); err != nil {
		return err
	}
	if err := readUint32s(b[8:], (*uint32)(&r.Reason)); err != nil {
		return err
	}
	return readUint64s(b[12:], &r.Taken)
}

// readUint64s reads 64-bit integers from the start of b.
func readUint64s(b []byte, into ...*uint64) error {
	if len(b) < 8*len(into) {
		return ErrShort
	}
	for i, v := range into {
		*v = be.Uint64(b[8*i:])
	}
	return nil
}
