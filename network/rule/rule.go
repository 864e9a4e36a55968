package rule

import (
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// Rule is one flow entry as an owner declares it.
type Rule struct {
	Switch openflow.DatapathID
	// Stage and Offset give table and priority.
	Stage  Stage
	Offset uint16
	Match  openflow.Match
	// Actions are applied to matching packets; none means drop, unless Goto is set.
	Actions []openflow.Action
	// Meter, if not zero, is the meter packets pass first.
	Meter uint32
	// Goto, if not zero, is the table that the packet goes on to, after the actions. A
	// switch with one table has no such rule.
	Goto Table
	// Idle and Hard are timeouts in whole seconds, zero for none.
	Idle, Hard time.Duration
	// Leased is for a rule that is of use only as long as the controller is there, as
	// one that asks it: the switch removes it by itself when it has not been renewed for
	// LeaseFor. The controller renews it as long as it is wanted. It has no timeouts of
	// its own.
	Leased bool
	// NotifyRemoved asks for the owner's OnRemoved callback when the switch
	// itself removes the rule.
	NotifyRemoved bool
}

// LeaseFor is how long a switch keeps a leased rule that nobody renews.
const LeaseFor = 12 * time.Second

// HardTimeout is after how long the switch removes the rule, zero for never.
func (r *Rule) HardTimeout() time.Duration {
	if r.Leased {
		return LeaseFor
	}
	return r.Hard
}

// Priority is the rule's priority on the wire.
func (r *Rule) Priority() uint16 { return r.Stage.Base() + r.Offset }

// Table is the table of the pipeline that the rule stands in. What no rule of a table
// matches goes on to the next, but for that of the last.
func (r *Rule) Table() Table {
	if r.Stage == StageMiss && r.Goto != 0 {
		return r.Goto - 1
	}
	return r.Stage.Table()
}

// Next is the table that the packet goes on to, zero for none.
func (r *Rule) Next() Table {
	if r.Stage == StageClassify {
		return TableService
	}
	return r.Goto
}

// Key is what makes a rule unique in the pipeline of a switch.
type Key struct {
	Table    Table
	Priority uint16
	Match    openflow.Match
}

// Key identifies the rule's place in the pipeline of its switch.
func (r *Rule) Key() Key { return Key{Table: r.Table(), Priority: r.Priority(), Match: r.Match} }

// Group is a group entry as an owner declares it.
type Group struct {
	Switch openflow.DatapathID
	// ID is the wire identifier; Owner.GroupID makes one that cannot collide
	// with another owner's.
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

// Program is what an owner wants in the switches under one key.
type Program struct {
	Rules  []Rule
	Groups []Group
	Meters []Meter
}

// ApplyOptions say how a program is brought into the switches.
type ApplyOptions struct {
	// Ordered writes the rules in slice order and waits for a barrier whenever
	// the next rule belongs to another switch.
	Ordered bool
	// Atomic makes the change of each switch one bundle, where it has bundles;
	// elsewhere the change is written in order between two barriers. What is a
	// single message needs no bundle.
	Atomic bool
	// Waves, if not nil, is the order in which switches are written: those of one
	// wave at once, the next wave when all of them have confirmed. Switches in no
	// wave go with the first. Nothing is deleted before the last wave is
	// confirmed, and a switch that does not confirm its deletions is waited for no
	// longer than a second. With Atomic the switches of later waves are given their bundles
	// to hold ready while the first wave is written, and none of these is committed before
	// all are taken. A change that fails is undone in the opposite order.
	Waves [][]openflow.DatapathID
	// Linger is how long after the last wave nothing is deleted yet, for packets that
	// are under way where they still need it. The change takes that much longer.
	Linger time.Duration
	// Written, if set, is called when everything that is to be written is
	// confirmed, before anything is deleted. It is called once, not at all when
	// the change fails before that, and must not block.
	Written func()
	// Report, if set, is filled in with what was sent.
	Report *Report
	// AllowDown accepts rules for switches that are not connected: they are
	// kept as desired state and written when the switch connects. Without it,
	// such a rule is refused with ErrSwitchDown.
	AllowDown bool
}

// Installed is a rule that the ledger holds.
type Installed struct {
	Rule
	// Number is that of its table in the switch, Next that of the table it goes on to,
	// zero for none.
	Number, Next uint8
	Cookie       Cookie
	// Owner and Name are the owner's name and the key it was applied under.
	Owner, Name string
	// Confirmed is true once the switch has acknowledged the rule by a barrier
	// or listed it in its flow statistics.
	Confirmed bool
	// Packets and Bytes are the counters last read; CountersAt tells when, and
	// is zero if they were never read.
	Packets, Bytes uint64
	CountersAt     time.Time
}

// Removed tells an owner that a switch has removed one of its rules.
type Removed struct {
	Installed
	// Reason is an OpenFlow flow-removed reason: idle, hard, delete, group delete.
	Reason   uint8
	Duration time.Duration
}
