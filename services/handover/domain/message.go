package domain

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// Kind is the kind of a message, and the last element of its URL's path.
type Kind string

// The kinds of messages.
const (
	KindHello    Kind = "hello"
	KindNotify   Kind = "notify"
	KindReady    Kind = "ready"
	KindComplete Kind = "complete"
	KindQuery    Kind = "query"
	KindClaim    Kind = "claim"
	KindVerify   Kind = "verify"
	KindWithdraw Kind = "withdraw"
)

// Envelope is part of every message. It makes the message valid only once, only for a short time, and
// only for the receiver.
type Envelope struct {
	From string    `json:"from" maxLength:"63" doc:"Domain that sends it"`
	To   string    `json:"to" maxLength:"63" doc:"Domain that it is for"`
	Time time.Time `json:"time" doc:"When it was sent"`
	// Nonce is random; the sender uses it in no other message.
	Nonce string `json:"nonce" minLength:"32" maxLength:"32" doc:"32 hex digits, never used again"`
	// Sequence grows with every message of the sender about one device.
	Sequence uint64 `json:"sequence" maximum:"9223372036854774784" doc:"Greater than in any earlier message about the device"`
}

// envelope implements message.
func (e *Envelope) envelope() *Envelope { return e }

// message is implemented by all messages, since each contains an Envelope.
type message interface{ envelope() *Envelope }

// Subject names a device.
type Subject struct {
	Home   string `json:"home" maxLength:"63" doc:"Domain that the device belongs to"`
	Device string `json:"device" maxLength:"64" doc:"Its name in that domain"`
}

// localID returns the device's name in the domain self.
func (s Subject) localID(self string) string {
	return Visitor{Home: s.Home, Device: s.Device}.LocalID(self)
}

// subject returns the visitor's name.
func (v Visitor) subject() Subject { return Subject{v.Home, v.Device} }

// Hello shows that the sender can be reached.
type Hello struct{ Envelope }

// Notify announces a device (t1).
type Notify struct {
	Envelope
	Visitor Visitor `json:"visitor" doc:"The device"`
	Move    string  `json:"move" minLength:"32" maxLength:"32" doc:"Name of this move, 32 hex digits"`
	Heading Heading `json:"heading,omitzero" doc:"Where it is going"`
}

// Prepared answers Notify and Claim.
type Prepared struct {
	Move string `json:"move"`
	// Carry asks the origin to send the device's packets over the peering. It is false if the
	// packets pass through the receiver anyway.
	Carry bool `json:"carry" doc:"The origin has to send the packets to the receiver"`
}

// Ready says that the origin now sends packets to the receiver's branch (t2).
type Ready struct {
	Envelope
	Subject
	Move string `json:"move" minLength:"32" maxLength:"32"`
}

// Complete says that the device is in the domain Host (t4). If it names a move, the receiver of the
// move sends it to the origin. If not, a domain sends it to the one from which it gets the device's
// packets.
type Complete struct {
	Envelope
	Subject
	Move     string    `json:"move,omitempty" maxLength:"32"`
	Host     string    `json:"host" maxLength:"63" doc:"Domain that the device is in"`
	Since    time.Time `json:"since,omitzero" doc:"When it arrived there, with a move"`
	Evidence *Evidence `json:"evidence,omitempty" doc:"The device's DHCP request"`
}

// Query asks which domain has the device with a hardware address.
type Query struct {
	Envelope
	MAC openflow.MAC `json:"mac" doc:"Hardware address that it asks about"`
}

// Answer answers Query.
type Answer struct {
	Known   bool     `json:"known" doc:"The domain has the device, or it is one of its own"`
	Visitor *Visitor `json:"visitor,omitempty"`
	Host    string   `json:"host,omitempty" maxLength:"63" doc:"Domain that the device is in, as far as is known"`
}

// Claim takes over a device that has appeared unannounced.
type Claim struct {
	Envelope
	Subject
	Move     string       `json:"move" minLength:"32" maxLength:"32"`
	MAC      openflow.MAC `json:"mac" doc:"Hardware address by which it asked"`
	Evidence *Evidence    `json:"evidence,omitempty"`
}

// Verify asks the device's home, through the domains between, whether the evidence is valid.
type Verify struct {
	Envelope
	Subject
	Evidence Evidence `json:"evidence"`
}

// Withdraw revokes a move. If it names no move, it says that the sender and the receiver no longer
// exchange the device's packets.
type Withdraw struct {
	Envelope
	Subject
	Move   string `json:"move,omitempty" maxLength:"32"`
	Reason string `json:"reason,omitempty" maxLength:"200"`
}

var tokenForm = regexp.MustCompile(`^[0-9a-f]{32}$`)

// newToken returns 128 random bits in hex.
func newToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(b[:])
}

// checkMove returns an error if the name of a move is not valid.
func checkMove(move string) error {
	if !tokenForm.MatchString(move) {
		return fmt.Errorf("move %.40q: 32 hex digits", move)
	}
	return nil
}
