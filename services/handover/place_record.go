package handover

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Kind is the kind of a record: what happened to the device.
type Kind string

// The kinds of records.
const (
	// KindAttach: the device came and had no place before.
	KindAttach Kind = "attach"
	// KindMove: the device moved from one place to another.
	KindMove Kind = "move"
	// KindPrepare: a place was prepared for the device.
	KindPrepare Kind = "prepare"
	// KindDetach: the device's rules were removed.
	KindDetach Kind = "detach"
	// KindReroute: the device's rules were moved away from a failed part of the network.
	KindReroute Kind = "reroute"
)

// kindEvents holds the verb of the event that reports each kind.
var kindEvents = map[Kind]string{
	KindAttach: "attached", KindMove: "moved", KindPrepare: "prepared", KindDetach: "detached", KindReroute: "rerouted",
}

// Results of a record.
const (
	ResultDone    = "done"
	ResultFailed  = "failed"
	ResultPending = "pending"
)

// Parts holds the times that a handover took. T_c of the model is the sum of the first four.
type Parts struct {
	Ta Duration `json:"t_a" doc:"Association: from the time at which the port came up until a host there is heard, by ARP or DHCP; 0 if the device was idle there before, or for over 10 s"`
	Td Duration `json:"t_d" doc:"DHCP: from the device's first message there to the answer, without the rules"`
	Tf Duration `json:"t_f" doc:"Rules: until the last switch confirmed what the device's packets need"`
	Te Duration `json:"t_e" doc:"One-way latency between device and edge switch, from an ARP exchange after the answer; 0 while unknown"`
	Tc Duration `json:"t_c" doc:"Sum of the four"`

	Queue Duration `json:"queue" doc:"Part of t_d: waiting for earlier work for the device"`
	Store Duration `json:"store" doc:"Writing the new place into the store, while the rules are written"`
	// Trigger is the delay that an observer next to the switch can measure.
	Trigger Duration `json:"trigger_to_rules" doc:"From the arrival of the message that moved the device to the confirmation of its rules"`
	Model   Duration `json:"model" doc:"Time for the rules that the model predicts from the measured latencies of control connections and links"`
}

// sum computes Tc.
func (p *Parts) sum() { p.Tc = p.Ta + p.Td + p.Tf + p.Te }

// Changes counts the rules that a handover changed in the switches.
type Changes struct {
	Added    int `json:"added"`
	Modified int `json:"modified"`
	Deleted  int `json:"deleted"`
	Switches int `json:"switches" doc:"Switches that were written to"`
}

func (c *Changes) add(o Changes) {
	c.Added, c.Modified, c.Deleted = c.Added+o.Added, c.Modified+o.Modified, c.Deleted+o.Deleted
	c.Switches = max(c.Switches, o.Switches)
}

// Spot is a place of a device.
type Spot struct {
	Port Port         `json:"port"`
	MAC  openflow.MAC `json:"mac,omitzero" doc:"MAC address that the device uses there"`
	Peer string       `json:"peer,omitempty" doc:"Domain that the port leads to"`
}

// String prints the place for people.
func (s Spot) String() string {
	switch {
	case s.Peer != "":
		return "domain " + s.Peer
	case s.MAC.IsZero():
		return s.Port.String()
	}
	return fmt.Sprintf("%v (%v)", s.Port, s.MAC)
}

// Record is one handover, as the API and the event stream show it.
type Record struct {
	ID       uint64     `json:"id"`
	Device   string     `json:"device"`
	IP       netip.Addr `json:"ip,omitzero"`
	Kind     Kind       `json:"kind" enum:"attach,move,prepare,detach,reroute"`
	Policy   string     `json:"policy" doc:"Policy that was used"`
	Cause    string     `json:"cause" doc:"What caused it: a DHCP message, the operator, a prediction, a neighbour, the network"`
	From     *Spot      `json:"from,omitempty"`
	To       *Spot      `json:"to,omitempty"`
	Join     string     `json:"join,omitempty" doc:"Switch where the new path leaves the old one"`
	Path     []string   `json:"path,omitempty" doc:"Path from the border port to the new place: switch/in>out"`
	Bicast   bool       `json:"bicast,omitempty" doc:"Packets went to both places for a while"`
	Prepared bool       `json:"prepared,omitempty" doc:"The place had been prepared before the device came"`
	Fallback string     `json:"fallback,omitempty" doc:"Why the policy of its class was not possible"`

	Started time.Time `json:"started"`
	Took    Duration  `json:"took" doc:"From the message that caused it to its end, including the removal of old rules"`
	Parts   Parts     `json:"parts"`
	Changes Changes   `json:"changes"`
	Result  string    `json:"result" enum:"pending,done,failed"`
	How     string    `json:"how,omitempty" doc:"How it ended"`
}

// Duration is a time.Duration that is written as text in JSON: "2.1ms".
type Duration = units.Duration

// hops formats a path for people and tests.
func hops(path []network.Hop) []string {
	var out []string
	for _, h := range path {
		out = append(out, fmt.Sprintf("%v/%d>%d", h.Switch, h.In, h.Out))
	}
	return out
}

// history is a ring of the latest records.
type history struct {
	ring []Record
	next uint64 // number of the next record; the first has number 1
}

// newHistory returns a ring of size records.
func newHistory(size int) *history { return &history{ring: make([]Record, max(size, 1)), next: 1} }

// add numbers a record and stores it in the place of the oldest.
func (h *history) add(r Record) uint64 {
	r.ID = h.next
	h.next++
	h.ring[r.ID%uint64(len(h.ring))] = r
	return r.ID
}

// at returns the record of that number, or nil if it has been overwritten.
func (h *history) at(id uint64) *Record {
	r := &h.ring[id%uint64(len(h.ring))]
	if id == 0 || r.ID != id {
		return nil
	}
	return r
}

// latest calls f with the records, the latest first, until f returns false.
func (h *history) latest(f func(*Record) bool) {
	for id := h.next - 1; id > 0; id-- {
		r := h.at(id)
		if r == nil || !f(r) {
			return
		}
	}
}
