package domain

import (
	"slices"
	"time"
)

// Stage is how far a move has got.
type Stage string

// The stages of a move, at its receiver and at its origin.
const (
	// StagePreparing: the receiver writes the rules of its branch.
	StagePreparing Stage = "preparing"
	// StagePrepared: the branch stands and waits for the origin's.
	StagePrepared Stage = "prepared"
	// StageReady: the device may come.
	StageReady Stage = "ready"
	// StageAsked: the origin has notified the receiver.
	StageAsked Stage = "asked"
	// StageBranched: the origin's branch to the receiver stands.
	StageBranched Stage = "branched"
	// StageExpired: the move took too long; the origin takes it back.
	StageExpired Stage = "expired"
)

// Move is a change of domain under way.
type Move struct {
	ID string `json:"id"`
	// Peer is the other domain; In says that we are the receiver.
	Peer string `json:"peer"`
	In   bool   `json:"in,omitempty"`
	// Reactive moves began with the device's own request.
	Reactive bool  `json:"reactive,omitempty"`
	Stage    Stage `json:"stage"`
	// Carry says that the origin sends the packets over the peering.
	Carry bool `json:"carry,omitempty"`
	// Proven says that the device has shown that it is at the receiver.
	Proven bool `json:"proven,omitempty"`
	// Back is when the device last attached at its origin although it was
	// announced elsewhere: who saw it last has it. Seen is its request.
	Back     time.Time `json:"back,omitzero"`
	Seen     *Evidence `json:"seen,omitempty"`
	Started  time.Time `json:"started"`
	Deadline time.Time `json:"deadline"`
}

// Unsent is a message that has to reach a neighbour, however long it takes.
type Unsent struct {
	Peer     string    `json:"peer"`
	Kind     Kind      `json:"kind"`
	Move     string    `json:"move,omitempty"`
	Host     string    `json:"host,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Evidence *Evidence `json:"evidence,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	// NotBefore holds it back while its receiver still gets packets.
	NotBefore time.Time `json:"not_before,omitzero"`
}

// Record is what a domain knows about a device that is not just at home.
type Record struct {
	ID string `json:"id"`
	Visitor
	// Upstream is the neighbour that the device's packets come from, Downstream
	// the one they go to.
	Upstream   string `json:"upstream,omitempty"`
	Downstream string `json:"downstream,omitempty"`
	// Former was downstream until the device came back here; it may still have
	// to ask on behalf of those behind it.
	Former string `json:"former,omitempty"`
	// Host is the domain that has the device, as far as is known.
	Host string `json:"host,omitempty"`
	Move *Move  `json:"move,omitempty"`
	// Let is where its home has last said that it is, which holds until LetUntil.
	Let      Place     `json:"let,omitzero"`
	LetUntil time.Time `json:"let_until,omitzero"`
	// Vouched is the neighbour with which its home has seen it since it came home.
	Vouched string `json:"vouched,omitempty"`
	// Arrived is the move by which it last came here.
	Arrived string   `json:"arrived,omitempty"`
	Outbox  []Unsent `json:"outbox,omitempty"`
	// Gone says that nothing is left to do but to deliver what is in the outbox.
	Gone    bool      `json:"gone,omitempty"`
	Changed time.Time `json:"changed"`
}

func (r *Record) clone() Record {
	c := *r
	c.Visitor = r.Visitor.clone()
	c.Outbox = slices.Clone(r.Outbox)
	if r.Move != nil {
		m := *r.Move
		c.Move = &m
	}
	return c
}

// onChain says whether the device's packets pass through here, move or no move.
func (r *Record) onChain(self string) bool {
	return !r.Gone && (r.Home == self || r.Upstream != "")
}

// outgoing is the move to the peer, or nil; incoming that from it.
func (r *Record) outgoing(peer string) *Move { return r.moving(peer, false) }
func (r *Record) incoming(peer string) *Move { return r.moving(peer, true) }

func (r *Record) moving(peer string, in bool) *Move {
	if r.Move == nil || r.Move.In != in || r.Move.Peer != peer {
		return nil
	}
	return r.Move
}

// settled says that the record holds nothing worth remembering.
func (r *Record) settled(self string) bool {
	if len(r.Outbox) > 0 || r.Move != nil {
		return false
	}
	return r.Gone || !r.onChain(self) || r.Home == self && r.Downstream == ""
}

// end says that the device has nothing to do with us any more.
func (r *Record) end() { r.Gone, r.Upstream, r.Downstream, r.Host, r.Move = true, "", "", "", nil }

// relay passes on where the device is to the domain its packets come from.
func (r *Record) relay(from string) {
	if r.Upstream != from {
		r.enqueue(Unsent{Peer: r.Upstream, Kind: KindComplete, Host: r.Host})
	}
}

// drop forgets what waits about a move that is over.
func (r *Record) drop(peer, move string) {
	r.Outbox = slices.DeleteFunc(r.Outbox, func(o Unsent) bool { return o.Peer == peer && o.Move == move })
}

// dropOne removes the message that was delivered, unless a newer one has taken its place.
func (r *Record) dropOne(o Unsent) {
	i := slices.IndexFunc(r.Outbox, func(x Unsent) bool {
		return x.Peer == o.Peer && x.Kind == o.Kind && x.Move == o.Move && x.Host == o.Host && x.Reason == o.Reason && x.Since.Equal(o.Since)
	})
	if i >= 0 {
		r.Outbox = slices.Delete(r.Outbox, i, i+1)
	}
}

// enqueue adds a message, in place of an earlier one that it makes pointless.
func (r *Record) enqueue(o Unsent) {
	if o.Peer == "" {
		return
	}
	r.Outbox = slices.DeleteFunc(r.Outbox, func(old Unsent) bool {
		return old.Peer == o.Peer && (old.Kind == o.Kind && old.Move == o.Move || o.Kind == KindWithdraw && o.Move == old.Move)
	})
	r.Outbox = append(r.Outbox, o)
}
