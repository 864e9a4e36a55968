package network

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// Switch is the session with one switch. After the session has ended its
// methods fail with ErrSwitchDown; a switch that connects again is a new Switch.
type Switch struct {
	n         *Network
	dpid      openflow.DatapathID
	conn      net.Conn
	ch        *channel
	ports     ports
	features  openflow.FeaturesReply
	caps      Capabilities
	layout    rule.Layout
	desc      openflow.Desc
	role      atomic.Uint32
	up        atomic.Bool
	keepalive keepalive
	since     time.Time
	upAt      time.Time // set before up is

	unregistered chan struct{} // closed when it has left the registry
	// countersWanted: the counters are wanted, because probes of a link are missing.
	countersWanted signal
	// announced is closed when everybody has been told that the switch is up.
	announced chan struct{}
	// acceptsChanges: changes may be sent; guarded by the registry's mutex.
	acceptsChanges bool
	flows          *ledger.Flows
	held           heldPackets
	logLimiter     lograte.Limit
	ruleCounts     ruleCounts
	refusals       refusedFlows

	// These belong to the reader goroutine.
	in      openflow.PacketIn
	pkt     PacketIn
	toFlush []*output
	share   cpuShare
	slot    readerSlot
	// resubmitted is made when it is first needed.
	resubmitted *resubmitCounter

	counters switchCounters
}

// switchCounters count what a session has done.
type switchCounters struct {
	packetIns                   [PacketKinds]atomic.Uint64
	packetInsDropped, malformed atomic.Uint64
	received                    messageCounts
}

// SwitchStats is a reading of a session's counters.
type SwitchStats struct {
	// Sent and Received count messages, from after hello and features on.
	Sent, Received Messages
	// PacketIns counts packets that the switch sent up, PacketInsOf by what they are.
	PacketIns   uint64
	PacketInsOf [PacketKinds]uint64
	// PacketInsDropped counts packets that came before the switch was up.
	PacketInsDropped uint64
	// PacketOutsDropped counts packets that did not fit the output queue.
	PacketOutsDropped uint64
	// FlowMods counts the changes of rules sent, without what renews leases, GroupMods those of groups.
	FlowMods, GroupMods uint64
	// Errors counts error messages from the switch, Malformed messages that
	// could not be read.
	Errors, Malformed uint64
	// Writes counts system calls that wrote to the switch.
	Writes uint64
	// Held is the number of packets held now.
	Held int
	// ForwardRules is the number of rules of default forwarding.
	ForwardRules int
}

// DPID is the switch's datapath identifier.
func (s *Switch) DPID() openflow.DatapathID { return s.dpid }

// RemoteAddr is the address the switch connected from.
func (s *Switch) RemoteAddr() net.Addr { return s.conn.RemoteAddr() }

// Since is when the session began.
func (s *Switch) Since() time.Time { return s.since }

// Description is what the switch says about its make.
func (s *Switch) Description() openflow.Desc { return s.desc }

// Capabilities are what the switch can do, by its own word or by configuration.
func (s *Switch) Capabilities() Capabilities { return s.caps }

// Layout is where the pipeline's tables stand in the switch.
func (s *Switch) Layout() rule.Layout { return s.layout }

// Role is the controller's role towards the switch.
func (s *Switch) Role() openflow.Role { return openflow.Role(s.role.Load()) }

// ControlLatency is the usual one-way latency of the control connection: half of
// the median of the latest echoes. It is zero before the first.
func (s *Switch) ControlLatency() time.Duration { return s.keepalive.rtt.median() / 2 }

// Connected reports whether the session lives and the switch is reconciled.
func (s *Switch) Connected() bool { return s.up.Load() }

// Ports lists the switch's ports by number.
func (s *Switch) Ports() []openflow.Port { return s.ports.list() }

// Port finds a port by its number.
func (s *Switch) Port(number uint32) (openflow.Port, bool) { return s.ports.get(number) }

// Stats reads the session's counters.
func (s *Switch) Stats() SwitchStats {
	st := SwitchStats{
		Sent: s.ch.out.sent.read(), Received: s.counters.received.read(),
		PacketInsDropped:  s.counters.packetInsDropped.Load(),
		PacketOutsDropped: s.ch.out.dropped.Load(), FlowMods: s.ch.flowMods.Load(), GroupMods: s.ch.groupMods.Load(),
		Errors: s.ch.errors.Load(), Malformed: s.counters.malformed.Load(),
		Writes: s.ch.out.writes.Load(), Held: s.held.len(), ForwardRules: s.flows.Len(),
	}
	for k := range s.counters.packetIns {
		st.PacketInsOf[k] = s.counters.packetIns[k].Load()
		st.PacketIns += st.PacketInsOf[k]
	}
	return st
}

// PacketOut makes the switch send a packet. It never waits: when too much is
// waiting for the switch already, the packet is dropped, counted, and the error
// is ErrBusy.
func (s *Switch) PacketOut(inPort uint32, actions []openflow.Action, data []byte) error {
	return s.ch.packetOut(inPort, actions, data)
}
