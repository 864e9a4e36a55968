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
	// StagePrepared: the receiver's branch has its rules, and waits for the origin's branch.
	StagePrepared Stage = "prepared"
	// StageReady: the device may attach at the receiver.
	StageReady Stage = "ready"
	// StageAsked: the origin has notified the receiver.
	StageAsked Stage = "asked"
	// StageBranched: the origin's branch to the receiver has its rules.
	StageBranched Stage = "branched"
	// StageExpired: the move took too long; the origin takes it back.
	StageExpired Stage = "expired"
)

// Move is a change of domain in progress.
type Move struct {
	ID string `json:"id"`
	// Peer is the other domain; In reports whether this domain is the receiver.
	Peer string `json:"peer"`
	In   bool   `json:"in,omitempty"`
	// Reactive reports whether the move began with the device's own request.
	Reactive bool  `json:"reactive,omitempty"`
	Stage    Stage `json:"stage"`
	// Carry reports whether the origin sends the packets over the peering.
	Carry bool `json:"carry,omitempty"`
	// Proven reports whether the device has proved that it is at the receiver.
	Proven bool `json:"proven,omitempty"`
	// Back is when the device last attached at its origin although it was announced elsewhere. Of
	// the two domains, the one that saw the device last has it. Seen is the device's request to the
	// origin.
	Back     time.Time `json:"back,omitzero"`
	Seen     *Evidence `json:"seen,omitempty"`
	Started  time.Time `json:"started"`
	Deadline time.Time `json:"deadline"`
}

// Unsent is a message that has to reach a neighbour, however long that takes.
type Unsent struct {
	Peer     string    `json:"peer"`
	Kind     Kind      `json:"kind"`
	Move     string    `json:"move,omitempty"`
	Host     string    `json:"host,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Evidence *Evidence `json:"evidence,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	// NotBefore holds the message back while its receiver still gets packets.
	NotBefore time.Time `json:"not_before,omitzero"`
}

// Record is what a domain knows about a visitor, about an own device that is in another domain, or
// about a device that is changing domains.
type Record struct {
	ID string `json:"id"`
	Visitor
	// Upstream is the neighbour from which the device's packets come, and Downstream the one to
	// which they go.
	Upstream   string `json:"upstream,omitempty"`
	Downstream string `json:"downstream,omitempty"`
	// Former is the neighbour that was downstream until the device came back here. It may still ask
	// on behalf of domains behind it.
	Former string `json:"former,omitempty"`
	// Host is the domain that has the device, as far as is known.
	Host string `json:"host,omitempty"`
	Move *Move  `json:"move,omitempty"`
	// Confirmed is the place of the device that its home has last confirmed. The confirmation is
	// valid until ConfirmedUntil.
	Confirmed      Place     `json:"let,omitzero"`
	ConfirmedUntil time.Time `json:"let_until,omitzero"`
	// ConfirmedWith is the neighbour whose evidence this domain, the device's home, has verified
	// since the device came home: the device has gone back to that neighbour.
	ConfirmedWith string `json:"vouched,omitempty"`
	// Arrived is the ID of the move by which the device last came here.
	Arrived string   `json:"arrived,omitempty"`
	Outbox  []Unsent `json:"outbox,omitempty"`
	// Gone reports whether only the outbox is left to be delivered.
	Gone    bool      `json:"gone,omitempty"`
	Changed time.Time `json:"changed"`
}

// clone returns a copy that shares no changeable data with r.
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

// onChain reports whether the device's packets pass through this domain, not counting the branch of a
// move in progress.
func (r *Record) onChain(self string) bool {
	return !r.Gone && (r.Home == self || r.Upstream != "")
}

// outgoing returns the move to the peer, or nil.
func (r *Record) outgoing(peer string) *Move { return r.moving(peer, false) }

// incoming returns the move from the peer, or nil.
func (r *Record) incoming(peer string) *Move { return r.moving(peer, true) }

// moving returns the move to or from the peer, or nil.
func (r *Record) moving(peer string, in bool) *Move {
	if r.Move == nil || r.Move.In != in || r.Move.Peer != peer {
		return nil
	}
	return r.Move
}

// disposable reports whether the record holds nothing that has to be kept.
func (r *Record) disposable(self string) bool {
	if len(r.Outbox) > 0 || r.Move != nil {
		return false
	}
	return r.Gone || !r.onChain(self) || r.Home == self && r.Downstream == ""
}

// end records that this domain no longer has a part in the device's chain.
func (r *Record) end() { r.Gone, r.Upstream, r.Downstream, r.Host, r.Move = true, "", "", "", nil }

// relay queues a message to the domain from which the device's packets come, which says where the
// device is. It queues none if the news came from that domain.
func (r *Record) relay(from string) {
	if r.Upstream != from {
		r.enqueue(Unsent{Peer: r.Upstream, Kind: KindComplete, Host: r.Host})
	}
}

// dropMove removes the messages about a move that has ended.
func (r *Record) dropMove(peer, move string) {
	r.Outbox = slices.DeleteFunc(r.Outbox, func(o Unsent) bool { return o.Peer == peer && o.Move == move })
}

// dropDelivered removes a delivered message, unless a newer one has replaced it.
func (r *Record) dropDelivered(o Unsent) {
	i := slices.IndexFunc(r.Outbox, func(x Unsent) bool {
		return x.Peer == o.Peer && x.Kind == o.Kind && x.Move == o.Move && x.Host == o.Host && x.Reason == o.Reason && x.Since.Equal(o.Since)
	})
	if i >= 0 {
		r.Outbox = slices.Delete(r.Outbox, i, i+1)
	}
}

// enqueue adds a message to the outbox, in place of an earlier one that the message makes obsolete.
func (r *Record) enqueue(o Unsent) {
	if o.Peer == "" {
		return
	}
	r.Outbox = slices.DeleteFunc(r.Outbox, func(old Unsent) bool {
		return old.Peer == o.Peer && (old.Kind == o.Kind && old.Move == o.Move || o.Kind == KindWithdraw && o.Move == old.Move)
	})
	r.Outbox = append(r.Outbox, o)
}
