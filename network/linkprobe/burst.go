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
	RewriteLost  diagnosis.Fault = "rewrite-lost"  // what is rewritten does not come out
	RewriteWrong diagnosis.Fault = "rewrite-wrong" // it comes out with other bytes than it should
	RewriteSlow  diagnosis.Fault = "rewrite-slow"  // it takes long
)

// Rewriting is what a switch is to rewrite of a burst's frames.
type Rewriting uint8

// The kinds of rewriting.
const (
	RewriteNothing  Rewriting = iota
	RewriteEthernet           // the MAC address that they are sent to
	RewriteAll                // that, both IP addresses and both TCP ports
)

const (
	// BurstSize is how many frames a burst has. Each crosses the link twice.
	BurstSize = 4
	// burstFrame is the size of one in bytes.
	burstFrame = 200
	// slower is by how much a burst takes longer at least before the difference is told.
	slower = 2 * time.Millisecond
)

// The addresses of a burst's frames once they are rewritten. Those before are a way's.
var (
	rewrittenTarget = openflow.MAC{0x02, 0x51, 0x1c, 0x71, 0, 2}
	rewrittenSource = netip.MustParseAddrPort("192.0.2.3:1009")
	rewrittenDst    = netip.MustParseAddrPort("192.0.2.4:2009")
)

// Burst is a few TCP segments that a switch's neighbour sends to it at once, and that it
// sends back to the neighbour, which hands them in: as they are or rewritten.
type Burst struct {
	// At is the port by which they come to the switch, and Home the neighbour's.
	At, Home topology.PortRef
	// MAC is the source address of the frames. It is not rewritten.
	MAC openflow.MAC

	rewriting Rewriting
	frames    [BurstSize]struct {
		mark       [markSize]byte
		sent, want []byte
		left       time.Time
		took       time.Duration
		came       bool
		changed    int // where the first byte is that differs; 0 if none does
	}
}

// NewBurst makes a burst.
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
		Seq: be.Uint32(mark[:]), Ack: uint32(be.Uint16(mark[4:])) << 16, Payload: filling(burstFrame - ethHeader - ipv4Header - 20),
	})
}

// Match is what the burst's frames have in common that come in at a port.
func (b *Burst) Match(port uint32) openflow.Match {
	return openflow.MustMatch(openflow.InPort(port), openflow.EthSrc(b.MAC), openflow.EthType(packet.TypeIPv4), openflow.IPProto(packet.ProtoTCP))
}

// Actions are what the switch is to do with them.
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

// Send returns a frame, which is taken to leave now.
func (b *Burst) Send(i int, now time.Time) []byte {
	b.frames[i].left = now
	return b.frames[i].sent
}

// Waiting says whether a frame has not come back.
func (b *Burst) Waiting() bool { return b.came() < BurstSize }

func (b *Burst) came() (n int) {
	for _, f := range b.frames {
		if f.came {
			n++
		}
	}
	return n
}

// Receive takes a frame with the burst's source address that came in at a port.
func (b *Burst) Receive(at topology.PortRef, frame []byte, now time.Time) {
	const mark = ethHeader + 24
	body := untagged(frame)
	if at != b.Home || len(body) < mark+markSize {
		return
	}
	for i := range b.frames {
		f := &b.frames[i]
		if f.came || !bytes.Equal(body[mark:mark+markSize], f.mark[:]) {
			continue
		}
		f.came, f.took = true, now.Sub(f.left)
		_, f.changed = compare(f.want, body)
		return
	}
}

// times are how long the frames took, ascending.
func (b *Burst) times() []time.Duration {
	var out []time.Duration
	for _, f := range b.frames {
		if f.came {
			out = append(out, f.took)
		}
	}
	slices.Sort(out)
	return out
}

// JudgeRewriting says what is wrong with how a switch rewrites, by a burst that it sent
// back as it was and one that it rewrote; ok is false if nothing is, or cannot be told.
// What it says should hold for a second pair of bursts, too: chance delays frames.
func JudgeRewriting(plain, rewritten *Burst) (f diagnosis.Finding, ok bool) {
	if plain.Waiting() {
		return f, false
	}
	f = diagnosis.Finding{Level: diagnosis.Fail, From: topology.PortRef{Switch: rewritten.At.Switch}}
	for _, r := range rewritten.frames {
		if r.came && r.changed != 0 {
			f.Fault, f.Found = RewriteWrong, fmt.Sprintf("packets whose addresses it rewrites leave it wrong, the first time in byte %d", r.changed+1)
			f.Remedy = "look for newer firmware; until then, have the controller rewrite MAC addresses only (rewrite: l2 of the switch under network.switches), or leave the switch out of what SOS and handover use"
			return f, true
		}
	}
	before, after := plain.times(), rewritten.times()
	switch {
	case len(after) == 0:
		f.Fault, f.Found = RewriteLost, "packets whose addresses it rewrites do not come out of it, while others do"
		f.Remedy = "see whether the switch takes rules that rewrite into its hardware, and its firmware's notes; until then, rewrite: l2 of the switch under network.switches"
	case after[0] > before[len(before)-1] && after[0]-before[0] >= slower:
		f.Fault, f.Level = RewriteSlow, diagnosis.Warn
		f.Found = fmt.Sprintf("a burst of %d packets takes %v to %v if it rewrites their addresses, and %v to %v if it does not: its processor does it, not its hardware",
			BurstSize, round(after[0]), round(after[len(after)-1]), round(before[0]), round(before[len(before)-1]))
		f.Remedy = "connections of SOS and moving devices through this switch will be slow: rewrite: l2 of the switch under network.switches, if it does that in hardware, or put agents and gateways at another"
	default:
		return f, false
	}
	return f, true
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
