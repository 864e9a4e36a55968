package subflows

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/stats"
)

// talkers are what samples show.
type talkers []stats.Talker

func (t talkers) Talkers(limit int, of func(stats.Conversation) bool) (out []stats.Talker) {
	for _, x := range t {
		if of(x.Conversation) && len(out) < limit {
			out = append(out, x)
		}
	}
	return out
}

func talker(at network.PortRef, from, to netip.Addr, proto uint8, port uint16, bits, wrong float64) stats.Talker {
	return stats.Talker{
		Conversation: stats.Conversation{At: at, Src: netip.AddrPortFrom(from, port), Dst: netip.AddrPortFrom(to, 80), Proto: proto}, Bits: bits, Error: wrong,
	}
}

// A connection of plain TCP that samples show to be large gets a path of its own, once; what is
// small, or may be for all that samples say, is somebody else's, or is not TCP, does not.
func TestPlainTCP(t *testing.T) {
	w := newWorld(t)
	at, from, to := hostAt(1, 1), addr(1, 1), addr(5, 1)
	w.Sampled = talkers{
		talker(at, from, to, packet.ProtoTCP, 1, 5*mbit, 0.3),
		talker(at, from, to, packet.ProtoTCP, 2, 0.5*mbit, 0.1),
		talker(at, from, to, packet.ProtoTCP, 3, 5*mbit, 0.9),
		talker(at, from, to, packet.ProtoUDP, 4, 5*mbit, 0.1),
		talker(at, from, addr(9, 9), packet.ProtoTCP, 5, 5*mbit, 0.1),
		talker(hostAt(1, 2), from, to, packet.ProtoTCP, 6, 5*mbit, 0.1),
		talker(port(5, 2), from, to, packet.ProtoTCP, 7, 5*mbit, 0.1),
		talker(hostAt(5, 1), to, from, packet.ProtoTCP, 80, 2*mbit, 0.1), // another connection from there
	}
	w.placeLarge(t.Context())
	all := w.many(2)
	if first := all[0]; !first.Plain || first.Flow != "tcp 10.0.1.1:1 > 10.0.5.1:80" || first.Connection != first.Flow || len(first.Path) != 3 {
		t.Errorf("%+v", first)
	}
	if all[0].Path[1] == all[1].Path[1] {
		t.Errorf("both go by %v", all[0].Path[1])
	}
	w.placeLarge(t.Context())
	w.many(2)
	w.Sampled = talkers{talker(hostAt(5, 1), to, from, packet.ProtoTCP, 80, 9*mbit, 0.1)}
	w.placeLarge(t.Context())
	w.stop()
	w.rules.Restart()
	w.start()
	if all := w.many(2); !all[0].Plain || w.flows.connections[connection{}] != nil {
		t.Errorf("after a restart %+v", all)
	}
	if n := w.counted(outcomePlaced); n != 0 {
		t.Errorf("%v SYNs are counted", n)
	}
}

// Connections that get no path, or have one, keep nobody from being looked at, however large they are.
func TestPlainTCPBehindOthers(t *testing.T) {
	w := newWorld(t)
	var all talkers
	for i := range uint16(2 * maxLarge) {
		all = append(all, talker(hostAt(1, 2), addr(1, 2), addr(9, 9), packet.ProtoTCP, 1000+i, 9*mbit, 0.1))
	}
	w.Sampled = append(all, talker(hostAt(1, 1), addr(1, 1), addr(5, 1), packet.ProtoTCP, 1, 5*mbit, 0.1))
	w.placeLarge(t.Context())
	w.many(1)
}
