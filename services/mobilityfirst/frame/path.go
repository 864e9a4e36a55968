package frame

import (
	"crypto/ed25519"
	"time"
)

// Hello says that a name is at an Ethernet address. A host broadcasts it for each of its names.
type Hello struct {
	// Key is the public key of which the name is the hash.
	Key [ed25519.PublicKeySize]byte
	// Number is higher than in any hello of the name before.
	Number uint64
	MAC    [6]byte
	// Challenge is what the hello answers to: nobody can have kept it from earlier. It is zero for
	// one that nobody has asked for.
	Challenge uint64
	// Signature is that of the name's owner, over all of this.
	Signature [ed25519.SignatureSize]byte
}

const (
	helloBody = ed25519.PublicKeySize + 8 + 6 + 8
	helloSize = helloBody + ed25519.SignatureSize
)

// helloPurpose keeps the signature from being of use for anything else that a key signs.
const helloPurpose = "sluice: where a name is on a link, 1\x00"

// Signed is what the signature is over.
func (h *Hello) Signed() []byte { return h.appendBody([]byte(helloPurpose)) }

func (h *Hello) appendBody(b []byte) []byte {
	b = be.AppendUint64(append(b, h.Key[:]...), h.Number)
	return be.AppendUint64(append(b, h.MAC[:]...), h.Challenge)
}

func (h *Hello) appendAll(b []byte) []byte { return append(h.appendBody(b), h.Signature[:]...) }

// Type implements Frame.
func (*Hello) Type() Type { return TypeHello }

// AppendTo implements Frame.
func (h *Hello) AppendTo(b []byte) []byte { return h.appendAll(appendWords(b, uint32(TypeHello))) }

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

// PathRequest asks for the way to a name. It is broadcast; whoever has the name answers, or
// whoever makes ways in its network.
type PathRequest struct {
	// ID is a number drawn by who asks.
	ID uint64
	// Destination is the name.
	Destination GUID
	// Service is what chunks ask for that are to go there: with Multihoming, ways to each interface of the name's
	// host; with Multicast, to each host that has the name.
	Service Service
	// Back and Forth are the VLAN tags of the way that has been made for this request: with which frames
	// go to who asks, and from there. Zero for none. Lease is how long it is there unless it is asked for
	// again, in ms. Whoever makes the way sets these; who asks leaves them zero.
	Back, Forth uint16
	Lease       uint32
	// Hello says who asks.
	Hello Hello
}

// Type implements Frame.
func (*PathRequest) Type() Type { return TypePathRequest }

// AppendTo implements Frame.
func (r *PathRequest) AppendTo(b []byte) []byte {
	b = be.AppendUint64(appendWords(b, uint32(TypePathRequest)), r.ID)
	b = be.AppendUint16(append(b, r.Destination[:]...), uint16(r.Service))
	b = be.AppendUint16(b, r.Back)
	return r.Hello.appendAll(be.AppendUint32(be.AppendUint16(b, r.Forth), r.Lease))
}

func (r *PathRequest) parse(b []byte) error {
	if err := longs(b, &r.ID); err != nil {
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

// PathGrant says how a name is reached.
type PathGrant struct {
	// Label is the VLAN tag with which frames go there, zero for none: the request's Forth.
	Label uint16
	// Lease is how long the way is there unless it is asked for again, in ms: the request's, if a way has
	// been made for it.
	Lease uint32
	// Token is what a PathConfirm has to give back before chunks are taken that come from where the request did.
	// Zero where nobody asks for that.
	Token uint64
	// Instance is what the host has drawn when it began: hosts that have the same name differ in it.
	Instance uint64
	// Hello is that of the name, with the request's ID as its challenge.
	Hello Hello
}

// LeaseTime is how long the way is there.
func (r *PathRequest) LeaseTime() time.Duration { return time.Duration(r.Lease) * time.Millisecond }

// LeaseTime is how long the way is there.
func (g *PathGrant) LeaseTime() time.Duration { return time.Duration(g.Lease) * time.Millisecond }

// Type implements Frame.
func (*PathGrant) Type() Type { return TypePathGrant }

// AppendTo implements Frame.
func (g *PathGrant) AppendTo(b []byte) []byte {
	b = be.AppendUint16(appendWords(b, uint32(TypePathGrant)), g.Label)
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

// PathConfirm says that who has asked for a path receives where it has asked from (as address validation in RFC 9000,
// section 8), and in which streams chunks will come from there: nobody else knows their numbers.
type PathConfirm struct {
	// Source is the name that has asked, Destination the one that it has asked for.
	Source, Destination GUID
	// Token is the PathGrant's.
	Token uint64
	// Stream is any of the session that is confirmed.
	Stream Stream
}

// Type implements Frame.
func (*PathConfirm) Type() Type { return TypePathConfirm }

// AppendTo implements Frame.
func (c *PathConfirm) AppendTo(b []byte) []byte {
	b = append(append(appendWords(b, uint32(TypePathConfirm)), c.Source[:]...), c.Destination[:]...)
	return be.AppendUint64(be.AppendUint64(b, c.Token), uint64(c.Stream))
}

func (c *PathConfirm) parse(b []byte) error {
	if len(b) < len(c.Source)+len(c.Destination) {
		return ErrShort
	}
	b = b[copy(c.Source[:], b):]
	b = b[copy(c.Destination[:], b):]
	return longs(b, &c.Token, (*uint64)(&c.Stream))
}
