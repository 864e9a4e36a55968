package frame

import (
	"crypto/ed25519"
	"time"
)

// Hello announces that a name is at an Ethernet address. A host broadcasts it for each of its
// names.
type Hello struct {
	// Key is the public key whose hash is the name.
	Key [ed25519.PublicKeySize]byte
	// Number is higher than in every earlier hello of the name.
	Number uint64
	MAC    [6]byte
	// Challenge repeats the number that the hello answers, so that it cannot be a replay. It is
	// zero in an unsolicited hello.
	Challenge uint64
	// Signature is the signature of the name's owner over the other fields.
	Signature [ed25519.SignatureSize]byte
}

const (
	helloBody = ed25519.PublicKeySize + 8 + 6 + 8
	helloSize = helloBody + ed25519.SignatureSize
)

// helloPurpose separates these signatures from all others that a key makes.
const helloPurpose = "sluice: where a name is on a link, 1\x00"

// Signed returns the bytes that the signature covers.
func (h *Hello) Signed() []byte { return h.appendBody([]byte(helloPurpose)) }

func (h *Hello) appendBody(b []byte) []byte {
	b = be.AppendUint64(append(b, h.Key[:]...), h.Number)
	return be.AppendUint64(append(b, h.MAC[:]...), h.Challenge)
}

func (h *Hello) appendAll(b []byte) []byte { return append(h.appendBody(b), h.Signature[:]...) }

// Type implements Frame.
func (*Hello) Type() Type { return TypeHello }

// AppendTo implements Frame.
func (h *Hello) AppendTo(b []byte) []byte { return h.appendAll(appendUint32s(b, uint32(TypeHello))) }

func (h *Hello) parse(b []byte) error {
	if len(b) < helloSize {
		return ErrShort
	}
	b = b[copy(h.Key[:], b):]
	h.Number = be.Uint64(b)
	b = b[8:]
	b = b[copy(h.MAC[:], b):]
	h.Challenge = be.Uint64(b)
	copy(h.Signature[:], b[8:])
	return nil
}

// PathRequest asks for a path to a name. It is broadcast, and the host that has the name answers. A
// controller that sets up paths in its network passes the request on to that host only.
type PathRequest struct {
	// ID is a random number of the requester.
	ID uint64
	// Destination is the name.
	Destination GUID
	// Service is the service of the chunks that will be sent: with Multihoming the requester wants
	// a path to each interface of the name's host, with Multicast one to each host that has the
	// name.
	Service Service
	// Back and Forth are the VLAN tags of the path that was set up for this request: Back is the
	// tag of frames to the requester, and Forth that of frames from the requester; zero stands for
	// none. Lease is how long the path exists unless it is requested again, in ms. The controller
	// that sets up the path fills these fields in. The requester leaves them zero, except for Forth
	// if it sends the request by a label that it knows already; the receiver then answers by its own
	// label for the requester's place.
	Back, Forth uint16
	Lease       uint32
	// Hello identifies the requester.
	Hello Hello
}

// Type implements Frame.
func (*PathRequest) Type() Type { return TypePathRequest }

// AppendTo implements Frame.
func (r *PathRequest) AppendTo(b []byte) []byte {
	b = be.AppendUint64(appendUint32s(b, uint32(TypePathRequest)), r.ID)
	b = be.AppendUint16(append(b, r.Destination[:]...), uint16(r.Service))
	b = be.AppendUint16(b, r.Back)
	return r.Hello.appendAll(be.AppendUint32(be.AppendUint16(b, r.Forth), r.Lease))
}

func (r *PathRequest) parse(b []byte) error {
	if err := readUint64s(b, &r.ID); err != nil {
		return err
	}
	b = b[8:]
	if len(b) < len(r.Destination)+2+2+2+4 {
		return ErrShort
	}
	b = b[copy(r.Destination[:], b):]
	r.Service = Service(be.Uint16(b))
	b = b[2:]
	r.Back, r.Forth, r.Lease = be.Uint16(b), be.Uint16(b[2:]), be.Uint32(b[4:])
	return r.Hello.parse(b[8:])
}

// PathGrant answers a PathRequest and tells how a name is reached.
type PathGrant struct {
	// Label is the VLAN tag of frames to the name, zero for none: the request's Forth.
	Label uint16
	// Lease is how long the path exists unless it is requested again, in ms. It is the request's
	// Lease if a path was set up for it.
	Lease uint32
	// Token is the number that a PathConfirm must repeat before chunks from the requester's address
	// are accepted. It is zero if no confirmation is required.
	Token uint64
	// Instance is a random number that the host has drawn at its start. It tells hosts with the
	// same name apart.
	Instance uint64
	// Hello is the hello of the name. Its challenge is derived from the request's ID and the
	// requester's key.
	Hello Hello
}

// LeaseTime returns Lease as a duration.
func (r *PathRequest) LeaseTime() time.Duration { return time.Duration(r.Lease) * time.Millisecond }

// LeaseTime returns Lease as a duration.
func (g *PathGrant) LeaseTime() time.Duration { return time.Duration(g.Lease) * time.Millisecond }

// Type implements Frame.
func (*PathGrant) Type() Type { return TypePathGrant }

// AppendTo implements Frame.
func (g *PathGrant) AppendTo(b []byte) []byte {
	b = be.AppendUint16(appendUint32s(b, uint32(TypePathGrant)), g.Label)
	b = be.AppendUint64(be.AppendUint32(b, g.Lease), g.Token)
	return g.Hello.appendAll(be.AppendUint64(b, g.Instance))
}

func (g *PathGrant) parse(b []byte) error {
	if len(b) < 2+4+8+8 {
		return ErrShort
	}
	g.Label, g.Lease, g.Token, g.Instance = be.Uint16(b), be.Uint32(b[2:]), be.Uint64(b[6:]), be.Uint64(b[14:])
	return g.Hello.parse(b[22:])
}

// PathConfirm proves that the requester of a path receives frames at the address from which it has
// sent the request (as address validation in RFC 9000, section 8). It also names the session whose
// streams will bring chunks from that address; no other host knows the session's number.
type PathConfirm struct {
	// Source is the name that has requested the path, and Destination the name that it has
	// requested.
	Source, Destination GUID
	// Token is the Token of the PathGrant.
	Token uint64
	// Stream is any stream of the confirmed session.
	Stream Stream
}

// Type implements Frame.
func (*PathConfirm) Type() Type { return TypePathConfirm }

// AppendTo implements Frame.
func (c *PathConfirm) AppendTo(b []byte) []byte {
	b = append(append(appendUint32s(b, uint32(TypePathConfirm)), c.Source[:]...), c.Destination[:]...)
	return be.AppendUint64(be.AppendUint64(b, c.Token), uint64(c.Stream))
}

func (c *PathConfirm) parse(b []byte) error {
	if len(b) < len(c.Source)+len(c.Destination) {
		return ErrShort
	}
	b = b[copy(c.Source[:], b):]
	b = b[copy(c.Destination[:], b):]
	return readUint64s(b, &c.Token, (*uint64)(&c.Stream))
}
