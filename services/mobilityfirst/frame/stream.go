package frame

// The types of profile mf2, which the original release does not have: a stream of chunks from one
// host to another, whose frames are numbered through, and the way there.
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

// StreamDataSize is how many bytes of a StreamData frame are not its payload.
const StreamDataSize = 22

// fresh is the bit of a frame's number that stands for StreamData.Fresh, blocked the one for StreamData.Blocked.
const fresh, blocked = 1 << 63, 1 << 62

// Stream is what a sender knows a stream by: a number that it has drawn (48 bits), for all streams in
// which it sends the same chunks, and how often it has begun anew (16 bits).
type Stream uint64

// NewStream is the first stream of a number.
func NewStream(drawn uint64) Stream { return Stream(drawn << 16) }

// Session is the same for streams of the same chunks.
func (s Stream) Session() uint64 { return uint64(s >> 16) }

// Next is the stream after this.
func (s Stream) Next() Stream { return s&^0xffff | (s+1)&0xffff }

// After says whether a stream of the same session was begun later than another.
func (s Stream) After(other Stream) bool { return int16(s-other) > 0 }

// StreamData carries a part of a stream's chunks. A chunk begins with its number (64 bits), which goes up
// within a session, and a RoutingHeader, at the start of a frame, and ends at the end of one.
type StreamData struct {
	Stream Stream
	// Number counts the stream's frames from zero. It has 62 bits.
	Number uint64
	// Fresh says that nothing of the stream has been acknowledged: who does not know it may take
	// it for a new one, and not for one that was forgotten.
	Fresh bool
	// Blocked says that the sender would send more if there were room for it (as in RFC 9000, section 19.13).
	Blocked bool
	// Payload is at most 65,535 bytes.
	Payload []byte
}

// Type implements Frame.
func (*StreamData) Type() Type { return TypeStreamData }

// AppendTo implements Frame.
func (d *StreamData) AppendTo(b []byte) []byte {
	number := d.Number &^ (fresh | blocked)
	if d.Fresh {
		number |= fresh
	}
	if d.Blocked {
		number |= blocked
	}
	b = be.AppendUint64(appendWords(b, uint32(TypeStreamData)), uint64(d.Stream))
	b = be.AppendUint16(be.AppendUint64(b, number), uint16(len(d.Payload)))
	return append(b, d.Payload...)
}

func (d *StreamData) parse(b []byte) error {
	if err := longs(b, (*uint64)(&d.Stream), &d.Number); err != nil {
		return err
	}
	d.Fresh, d.Blocked, d.Number = d.Number&fresh != 0, d.Number&blocked != 0, d.Number&^(fresh|blocked)
	if b = b[16:]; len(b) < 2 || len(b) < 2+int(be.Uint16(b)) {
		return ErrShort
	}
	d.Payload = b[2 : 2+int(be.Uint16(b))]
	return nil
}

// StreamAck says what of a stream has come.
type StreamAck struct {
	Stream Stream
	// Next is the first frame that is missing. All chunks that end at Taken or before are the
	// receiver's: the sender may forget them.
	Next, Taken uint64
	// Limit is the first frame for which there is no room yet.
	Limit uint64
	// Ranges are frames behind Next that have come, in order, apart from each other.
	Ranges []Range
}

// Range is some frames that follow each other: the first is Skip behind the end of the range
// before it, or behind Next.
type Range struct{ Skip, Count uint16 }

// MaxRanges is how many an acknowledgement has at most.
const MaxRanges = 64

// Type implements Frame.
func (*StreamAck) Type() Type { return TypeStreamAck }

// AppendTo implements Frame. Ranges beyond MaxRanges are left out.
func (a *StreamAck) AppendTo(b []byte) []byte {
	b = appendWords(b, uint32(TypeStreamAck))
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
	if err := longs(b, (*uint64)(&a.Stream), &a.Next, &a.Taken, &a.Limit); err != nil {
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

// StreamQuery asks what of a stream has come: the answer is a StreamAck, or a StreamReset.
type StreamQuery struct{ Stream Stream }

// Type implements Frame.
func (*StreamQuery) Type() Type { return TypeStreamQuery }

// AppendTo implements Frame.
func (q *StreamQuery) AppendTo(b []byte) []byte {
	return be.AppendUint64(appendWords(b, uint32(TypeStreamQuery)), uint64(q.Stream))
}

func (q *StreamQuery) parse(b []byte) error { return longs(b, (*uint64)(&q.Stream)) }

// ResetReason says why a stream is over.
type ResetReason uint32

// The reasons.
const (
	// ResetUnknown is for a stream that the receiver does not know, or no longer.
	ResetUnknown ResetReason = 1 + iota
	// ResetTooLarge is for a chunk that is larger than the receiver takes.
	ResetTooLarge
	// ResetInvalid is for frames that contradict each other.
	ResetInvalid
	// ResetRefused is for a stream that the receiver does not want.
	ResetRefused
	// ResetAbandoned is from the sender, which sends no more of it.
	ResetAbandoned
	// ResetLater is for chunks that the receiver does not want now. The way to it is as it was.
	ResetLater
)

// StreamReset says that a stream is over: what has not been taken is not taken.
type StreamReset struct {
	Stream Stream
	Reason ResetReason
	// Taken is as in the StreamAck that would be the last; zero from a sender, or from a receiver that
	// does not know the stream.
	Taken uint64
}

// Type implements Frame.
func (*StreamReset) Type() Type { return TypeStreamReset }

// AppendTo implements Frame.
func (r *StreamReset) AppendTo(b []byte) []byte {
	b = appendWords(be.AppendUint64(appendWords(b, uint32(TypeStreamReset)), uint64(r.Stream)), uint32(r.Reason))
	return be.AppendUint64(b, r.Taken)
}

func (r *StreamReset) parse(b []byte) error {
	if err := longs(b, (*uint64)(&r.Stream)); err != nil {
		return err
	}
	if err := words(b[8:], (*uint32)(&r.Reason)); err != nil {
		return err
	}
	return longs(b[12:], &r.Taken)
}

// longs reads 64-bit numbers from the start of b.
func longs(b []byte, into ...*uint64) error {
	if len(b) < 8*len(into) {
		return ErrShort
	}
	for i, v := range into {
		*v = be.Uint64(b[8*i:])
	}
	return nil
}
