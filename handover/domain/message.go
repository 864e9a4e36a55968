package domain

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// Kind names a message; it is also the last element of its path.
type Kind string

// The messages.
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

// Envelope is what every message carries, so that it counts once, now, and here.
type Envelope struct {
	From string    `json:"from" maxLength:"63" doc:"Domain that sends it"`
	To   string    `json:"to" maxLength:"63" doc:"Domain that it is for"`
	Time time.Time `json:"time" doc:"When it was sent"`
	// Nonce is used once.
	Nonce string `json:"nonce" minLength:"32" maxLength:"32" doc:"32 hex digits, never used again"`
	// Sequence grows with every message of the sender about one device.
	Sequence uint64 `json:"sequence" maximum:"9223372036854774784" doc:"Greater than in any earlier message about the device"`
}

func (e *Envelope) envelope() *Envelope { return e }

// message is anything with an envelope.
type message interface{ envelope() *Envelope }

// Subject names a device.
type Subject struct {
	Home   string `json:"home" maxLength:"63" doc:"Domain that the device belongs to"`
	Device string `json:"device" maxLength:"64" doc:"Its name in that domain"`
}

func (s Subject) localID(self string) string {
	return Visitor{Home: s.Home, Device: s.Device}.LocalID(self)
}

func (v Visitor) subject() Subject { return Subject{v.Home, v.Device} }

// Hello says that the sender is there.
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
	// Carry asks the origin to send the device's packets over the peering.
	// It is false if they pass through the receiver anyway.
	Carry bool `json:"carry" doc:"The origin has to send the packets to the receiver"`
}

// Ready says that the origin's branch to the receiver carries (t2).
type Ready struct {
	Envelope
	Subject
	Move string `json:"move" minLength:"32" maxLength:"32"`
}

// Complete says that the device is with Host (t4). With a move it is the
// receiver's word to the origin; without, an origin's to the domain that it has
// the device's packets from.
type Complete struct {
	Envelope
	Subject
	Move     string    `json:"move,omitempty" maxLength:"32"`
	Host     string    `json:"host" maxLength:"63" doc:"Domain that the device is in"`
	Since    time.Time `json:"since,omitzero" doc:"When it arrived there, with a move"`
	Evidence *Evidence `json:"evidence,omitempty" doc:"The device's DHCP request"`
}

// Query asks who has the device with a hardware address.
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

// Claim takes a device that has turned up unannounced.
type Claim struct {
	Envelope
	Subject
	Move     string       `json:"move" minLength:"32" maxLength:"32"`
	MAC      openflow.MAC `json:"mac" doc:"Hardware address by which it asked"`
	Evidence *Evidence    `json:"evidence,omitempty"`
}

// Verify asks the device's home, through the domains between, whether the
// evidence is good.
type Verify struct {
	Envelope
	Subject
	Evidence Evidence `json:"evidence"`
}

// Withdraw takes back a move or, without one, says that the sender no longer
// carries the device.
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
	_, _ = rand.Read(b[:]) // never fails: the program is ended if it would
	return hex.EncodeToString(b[:])
}

func checkMove(move string) error {
	if !tokenForm.MatchString(move) {
		return fmt.Errorf("move %.40q: 32 hex digits", move)
	}
	return nil
}
