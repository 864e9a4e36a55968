package linkprobe

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// The faults of switches that rewrite addresses.
const (
	RewriteLost  diagnosis.Fault = "rewrite-lost"  // rewritten packets do not leave the switch
	RewriteWrong diagnosis.Fault = "rewrite-wrong" // they leave it with wrong bytes
	RewriteSlow  diagnosis.Fault = "rewrite-slow"  // they leave it late
)

// Rewriting is the set of fields that a switch rewrites in a burst's frames.
type Rewriting uint8

// The kinds of rewriting.
const (
	RewriteNothing  Rewriting = iota
	RewriteEthernet           // the destination MAC address
	RewriteAll                // the destination MAC address, both IP addresses and both TCP ports
)

const (
	// BurstSize is the number of frames in a burst. Each crosses the link twice.
	BurstSize = 4
	// burstFrameSize is the size of each frame in bytes.
	burstFrameSize = 200
	// minSlowdown is the least difference between the times of two bursts that is reported.
	minSlowdown = 2 * time.Millisecond
)

// The addresses of a burst's frames after rewriting. Before rewriting, the frames have the same
// addresses as a Direction's frames.
var (
	rewrittenTarget = openflow.MAC{0x02, 0x51, 0x1c, 0x71, 0, 2}
	rewrittenSource = netip.MustParseAddrPort("192.0.2.3:1009")
	rewrittenDst    = netip.MustParseAddrPort("192.0.2.4:2009")
)

// Burst is a few TCP segments that a switch's neighbour sends to it at the same time. The switch
// sends them back, unchanged or rewritten, and the neighbour passes them to the controller.
type Burst struct {
	// At is the port by which the frames arrive at the switch, and Home the neighbour's port.
	At, Home topology.PortRef
	// MAC is the source address of the frames. It is not rewritten.
	MAC openflow.MAC

	rewriting Rewriting
	frames    [BurstSize]struct {
		mark       [markSize]byte
		sent, want []byte
		left       time.Time
		took       time.Duration
		arrived    bool
		changed    int // index of the first byte that differs; 0 if none does
	}
}

// NewBurst returns a burst with random marks.
func NewBurst(home, at topology.PortRef, r Rewriting) *Burst {
	b := &Burst{At: at, Home: home, rewriting: r}
	copy(b.MAC[:], addressBlock[:])
	_, _ = rand.Read(b.MAC[len(addressBlock):]) // never fails, see package crypto/rand
	from, to := netip.AddrPortFrom(sourceIP, 9), netip.AddrPortFrom(targetIP, 9)
	for i := range b.frames {
		f := &b.frames[i]
		_, _ = rand.Read(f.mark[:])
		f.sent = b.frame(f.mark, target, from, to)
		switch r {
		case RewriteAll:
			f.want = b.frame(f.mark, rewrittenTarget, rewrittenSource, rewrittenDst)
		case RewriteEthernet:
			f.want = b.frame(f.mark, rewrittenTarget, from, to)
		default:
			f.want = f.sent
		}
	}
	return b
}

func (b *Burst) frame(mark [markSize]byte, to openflow.MAC, src, dst netip.AddrPort) []byte {
	return packet.AppendTCP(nil, packet.Frame{Dst: to, Src: b.MAC}, packet.TCPSegment{
		Src: src, Dst: dst, Flags: packet.ACK, Window: 1000,
		Seq: be.Uint32(mark[:]), Ack: uint32(be.Uint16(mark[4:])) << 16, Payload: padding(burstFrameSize - ethHeader - ipv4Header - 20),
	})
}

// Match returns the match for the burst's frames that arrive at a port.
func (b *Burst) Match(port uint32) openflow.Match {
	return openflow.MustMatch(openflow.InPort(port), openflow.EthSrc(b.MAC), openflow.EthType(packet.TypeIPv4), openflow.IPProto(packet.ProtoTCP))
}

// Actions returns the actions that the switch applies to the frames.
func (b *Burst) Actions() []openflow.Action {
	var out []openflow.Action
	if b.rewriting != RewriteNothing {
		out = append(out, openflow.SetField(openflow.EthDst(rewrittenTarget)))
	}
	if b.rewriting == RewriteAll {
		out = append(out, openflow.SetField(openflow.IPSrc(rewrittenSource.Addr())), openflow.SetField(openflow.IPDst(rewrittenDst.Addr())),
			openflow.SetField(openflow.TCPSrc(rewrittenSource.Port())), openflow.SetField(openflow.TCPDst(rewrittenDst.Port())))
	}
	return append(out, openflow.Output(openflow.PortInPort))
}

// Send returns frame i, and records that it is sent now.
func (b *Burst) Send(i int, now time.Time) []byte {
	b.frames[i].left = now
	return b.frames[i].sent
}

// Waiting reports whether any frame has not come back.
func (b *Burst) Waiting() bool { return b.arrivedFrames() < BurstSize }

func (b *Burst) arrivedFrames() (n int) {
	for _, f := range b.frames {
		if f.arrived {
			n++
		}
	}
	return n
}

// Receive handles a frame with the burst's source address that arrived at a port.
func (b *Burst) Receive(at topology.PortRef, frame []byte, now time.Time) {
	const mark = ethHeader + 24
	body := untagged(frame)
	if at != b.Home || len(body) < mark+markSize {
		return
	}
	for i := range b.frames {
		f := &b.frames[i]
		if f.arrived || !bytes.Equal(body[mark:mark+markSize], f.mark[:]) {
			continue
		}
		f.arrived, f.took = true, now.Sub(f.left)
		_, f.changed = compare(f.want, body)
		return
	}
}

// times returns how long the frames took, ascending.
func (b *Burst) times() []time.Duration {
	var out []time.Duration
	for _, f := range b.frames {
		if f.arrived {
			out = append(out, f.took)
		}
	}
	slices.Sort(out)
	return out
}

// JudgeRewriting returns the fault in a switch's rewriting, from a burst that the switch sent
// back unchanged and one that it rewrote. ok is false if there is no fault, or if that cannot be
// decided. The caller should confirm a fault with a second pair of bursts, because frames may be
// delayed by chance.
func JudgeRewriting(plain, rewritten *Burst) (f diagnosis.Finding, ok bool) {
	if plain.Waiting() {
		return f, false
	}
	f = diagnosis.Finding{Level: diagnosis.Fail, From: topology.PortRef{Switch: rewritten.At.Switch}}
	for _, r := range rewritten.frames {
		if r.arrived && r.changed != 0 {
			f.Fault, f.Found = RewriteWrong, fmt.Sprintf("packets whose addresses it rewrites leave it wrong, the first time in byte %d", r.changed+1)
			f.Remedy = "look for newer firmware; until then, have the controller rewrite MAC addresses only (rewrite: l2 of the switch under network.switches), or keep services that rewrite addresses off this switch"
			return f, true
		}
	}
	before, after := plain.times(), rewritten.times()
	switch {
	case len(after) == 0:
		f.Fault, f.Found = RewriteLost, "packets whose addresses it rewrites do not come out of it, while others do"
		f.Remedy = "see whether the switch takes rules that rewrite into its hardware, and its firmware's notes; until then, rewrite: l2 of the switch under network.switches"
	case after[0] > before[len(before)-1] && after[0]-before[0] >= minSlowdown:
		f.Fault, f.Level = RewriteSlow, diagnosis.Warn
		f.Found = fmt.Sprintf("a burst of %d packets takes %v to %v if it rewrites their addresses, and %v to %v if it does not: its processor does it, not its hardware",
			BurstSize, round(after[0]), round(after[len(after)-1]), round(before[0]), round(before[len(before)-1]))
		f.Remedy = "connections whose addresses are rewritten at this switch will be slow: rewrite: l2 of the switch under network.switches, if it does that in hardware, or put agents and gateways at another"
	default:
		return f, false
	}
	return f, true
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
