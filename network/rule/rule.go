package rule

import (
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// Rule is one flow entry as an owner declares it.
type Rule struct {
	Switch openflow.DatapathID
	// Stage and Offset determine table and priority.
	Stage  Stage
	Offset uint16
	Match  openflow.Match
	// Actions are applied to matching packets. Without actions the packet is dropped, unless
	// Goto is set.
	Actions []openflow.Action
	// Meter, if not zero, is the meter that packets pass first.
	Meter uint32
	// Goto, if not zero, is the table that the packet goes on to after the actions. A rule with Goto
	// is not written to a switch with one table.
	Goto Table
	// Idle and Hard are timeouts in whole seconds, zero for none.
	Idle, Hard time.Duration
	// Leased is true for a rule that is useful only while the controller runs, such as one that
	// sends packets to it. The switch removes the rule when it has not been renewed for
	// LeaseFor; the controller renews it as long as it is wanted. A leased rule has no other
	// timeouts.
	Leased bool
	// NotifyRemoved requests a call of the owner's OnRemoved when the switch itself removes the
	// rule.
	NotifyRemoved bool
}

// LeaseFor is how long a switch keeps a leased rule after its last renewal.
const LeaseFor = 12 * time.Second

// HardTimeout returns the time after which the switch removes the rule, zero for never.
func (r *Rule) HardTimeout() time.Duration {
	if r.Leased {
		return LeaseFor
	}
	return r.Hard
}

// Expires reports whether the rule ends by itself. A leased rule does not, because the controller
// renews it as long as it is wanted.
func (r *Rule) Expires() bool { return r.Idle > 0 || r.Hard > 0 }

// Priority returns the rule's priority on the wire.
func (r *Rule) Priority() uint16 { return r.Stage.Base() + r.Offset }

// Table returns the table of the pipeline that the rule is in. A miss rule with Goto is in the
// table before the one that it leads to, and a miss rule without Goto in the last table.
func (r *Rule) Table() Table {
	if r.Stage == StageMiss && r.Goto != 0 {
		return r.Goto - 1
	}
	return r.Stage.Table()
}

// Next returns the table that the packet goes on to, zero for none.
func (r *Rule) Next() Table {
	if r.Stage == StageClassify {
		return TableService
	}
	return r.Goto
}

// Key identifies a rule in the pipeline of a switch.
type Key struct {
	Table    Table
	Priority uint16
	Match    openflow.Match
}

// Key returns the rule's key.
func (r *Rule) Key() Key { return Key{Table: r.Table(), Priority: r.Priority(), Match: r.Match} }

// Group is a group entry as an owner declares it.
type Group struct {
	Switch openflow.DatapathID
	// ID is the group's number on the wire. Owner.GroupID makes one that contains a part of the
	// owner's hash.
	ID      uint32
	Type    openflow.GroupType
	Buckets []openflow.Bucket
}

// Meter is a meter as an owner declares it.
type Meter struct {
	Switch openflow.DatapathID
	ID     uint32
	Flags  uint16
	Bands  []openflow.MeterBand
}

// Program holds the rules, groups and meters that an owner declares under one key.
type Program struct {
	Rules  []Rule
	Groups []Group
	Meters []Meter
}

// ApplyOptions control how a program is written to the switches.
type ApplyOptions struct {
	// Ordered writes the rules in slice order, and waits for a barrier whenever the next rule
	// belongs to another switch.
	Ordered bool
	// Atomic makes the changes of each switch one bundle, if the switch supports bundles.
	// Otherwise they are written in order between two barriers. A single message needs no
	// bundle.
	Atomic bool
	// Waves, if not nil, is the order in which switches are written: those of one wave at the
	// same time, and the next wave when all of them have confirmed. Switches in no wave belong
	// to the first. Deletions are sent after the last wave is confirmed, and a switch has at
	// most a second to confirm its deletions. With Atomic the switches of later waves receive
	// their bundles while the first wave is written, and no bundle of a later wave is committed
	// before all of them are accepted. A change that fails is undone in the opposite order.
	Waves [][]openflow.DatapathID
	// Linger is the time between the last wave and the deletions. Packets in flight may still
	// need the old rules in that time. The change takes that much longer.
	Linger time.Duration
	// Written, if not nil, is called when everything to be written is confirmed, before anything
	// is deleted. It is called once, or not at all if the change fails earlier, and must not
	// block.
	Written func()
	// Report, if not nil, is filled in with what was sent.
	Report *Report
	// AllowDown accepts rules for switches that are not connected: they are kept as desired
	// state, and written when the switch connects. Without it, such a rule is refused with
	// ErrSwitchDown.
	AllowDown bool
}

// Installed is a rule that the ledger, the record of all declared rules, holds.
type Installed struct {
	Rule
	// Number is the number of the rule's table in the switch. Next is the number of the table
	// that packets go on to, zero for none.
	Number, Next uint8
	Cookie       Cookie
	// Owner and Name are the owner's name and the key under which the rule was applied.
	Owner, Name string
	// Confirmed is true once the switch has acknowledged the rule by a barrier or listed it in
	// its flow statistics.
	Confirmed bool
	// Packets and Bytes are the counters last read. CountersAt is the time of the reading, and
	// zero if they were never read.
	Packets, Bytes uint64
	CountersAt     time.Time
}

// Removed tells an owner which of its rules a switch has removed, and why.
type Removed struct {
	Installed
	// Reason is an OpenFlow flow-removed reason: idle, hard, delete, group delete.
	Reason   uint8
	Duration time.Duration
}
