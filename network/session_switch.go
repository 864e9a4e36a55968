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

// Switch is the session with one switch. After the session has ended its methods return
// ErrSwitchDown. A switch that connects again is a new Switch.
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
	upAt      time.Time // when the switch came up; it is set before up

	unregistered chan struct{} // closed when the session has left the registry
	// countersWanted is set when the port counters are to be read because probes of a link are
	// missing.
	countersWanted signal
	// announced is closed when the switch has been announced as up.
	announced chan struct{}
	// acceptsChanges reports whether changes may be sent. The registry's mutex guards it.
	acceptsChanges bool
	flows          *ledger.Flows
	held           heldPackets
	logLimiter     lograte.Limit
	ruleCounts     ruleCounts
	refusals       refusedFlows
	comparer       comparer

	// The reader's goroutine owns these.
	in      openflow.PacketIn
	pkt     PacketIn
	toFlush []*output
	share   cpuShare
	slot    readerSlot
	// resubmitted is created on first use.
	resubmitted *resubmitCounter

	counters switchCounters
}

// switchCounters counts the messages of a session.
type switchCounters struct {
	packetIns                   [PacketKinds]atomic.Uint64
	packetInsDropped, malformed atomic.Uint64
	received                    messageCounts
}

// SwitchStats holds the values of a session's counters.
type SwitchStats struct {
	// Sent and Received count the messages after the handshake.
	Sent, Received Messages
	// PacketIns counts the packets that the switch has sent to the controller, and PacketInsOf
	// those of each kind.
	PacketIns   uint64
	PacketInsOf [PacketKinds]uint64
	// PacketInsDropped counts packets that arrived before the switch was up.
	PacketInsDropped uint64
	// PacketOutsDropped counts packets that did not fit into the output queue.
	PacketOutsDropped uint64
	// FlowMods counts the changes of rules sent, without renewals of leases, and GroupMods the
	// changes of groups.
	FlowMods, GroupMods uint64
	// Errors counts the switch's error messages, and Malformed the messages that could not be
	// read.
	Errors, Malformed uint64
	// Writes counts the system calls that wrote to the switch.
	Writes uint64
	// Held is the number of packets that are held at present.
	Held int
	// ForwardRules is the number of default forwarding's rules.
	ForwardRules int
	// Drift counts the differences between the switch and the declared state that were found.
	Drift DriftStats
}

// DPID returns the switch's datapath identifier.
func (s *Switch) DPID() openflow.DatapathID { return s.dpid }

// RemoteAddr returns the address that the switch connected from.
func (s *Switch) RemoteAddr() net.Addr { return s.conn.RemoteAddr() }

// Since returns when the session began.
func (s *Switch) Since() time.Time { return s.since }

// Description returns the switch's description of itself.
func (s *Switch) Description() openflow.Desc { return s.desc }

// Capabilities returns what the switch can do, as it reports or as configured.
func (s *Switch) Capabilities() Capabilities { return s.caps }

// Layout returns the numbers of the pipeline's tables in the switch.
func (s *Switch) Layout() rule.Layout { return s.layout }

// Role returns the controller's role towards the switch.
func (s *Switch) Role() openflow.Role { return openflow.Role(s.role.Load()) }

// ControlLatency returns the typical one-way latency of the control connection: half of the median
// of the latest echoes. It is zero before the first.
func (s *Switch) ControlLatency() time.Duration { return s.keepalive.rtt.median() / 2 }

// Connected reports whether the session is alive and the switch's rules are reconciled.
func (s *Switch) Connected() bool { return s.up.Load() }

// Ports returns the switch's ports, ordered by number.
func (s *Switch) Ports() []openflow.Port { return s.ports.list() }

// Port returns the port with the number.
func (s *Switch) Port(number uint32) (openflow.Port, bool) { return s.ports.get(number) }

// Stats returns the values of the session's counters.
func (s *Switch) Stats() SwitchStats {
	st := SwitchStats{
		Sent: s.ch.out.sent.read(), Received: s.counters.received.read(),
		PacketInsDropped:  s.counters.packetInsDropped.Load(),
		PacketOutsDropped: s.ch.out.dropped.Load(), FlowMods: s.ch.flowMods.Load(), GroupMods: s.ch.groupMods.Load(),
		Errors: s.ch.errors.Load(), Malformed: s.counters.malformed.Load(),
		Writes: s.ch.out.writes.Load(), Held: s.held.len(), ForwardRules: s.flows.Len(), Drift: s.comparer.stats(),
	}
	for k := range s.counters.packetIns {
		st.PacketInsOf[k] = s.counters.packetIns[k].Load()
		st.PacketIns += st.PacketInsOf[k]
	}
	return st
}

// PacketOut makes the switch send a packet. It never waits: if too many packets are queued for the
// switch, PacketOut drops the packet, counts it, and returns ErrBusy.
func (s *Switch) PacketOut(inPort uint32, actions []openflow.Action, data []byte) error {
	return s.ch.packetOut(inPort, actions, data)
}
