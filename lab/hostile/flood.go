package hostile

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"

	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// floodPorts is the number of ports of a switch that floods.
const floodPorts = 8

// batch is the number of messages that are written at once.
const batch = 256

// flooding returns the behaviour of a switch that sends messages without end; next appends the n-th
// one.
func flooding(next func(b []byte, n uint64, t Target) []byte) func(context.Context) behaviour {
	return func(context.Context) behaviour {
		return behaviour{options: fake.Options{Ports: floodPorts}, pause: reconnectDelay, attack: func(ctx context.Context, s *fake.Switch, t Target) {
			var b []byte
			for n := rand.Uint64(); ctx.Err() == nil; {
				b = b[:0]
				for range batch {
					b = next(b, n, t)
					n++
				}
				if _, err := s.Write(b); err != nil {
					return
				}
			}
		}}
	}
}

// packetIn appends a packet-in with a frame from one of the ports.
func packetIn(b []byte, n uint64, frame []byte) []byte {
	in := &openflow.PacketIn{BufferID: openflow.NoBuffer, TotalLen: uint16(len(frame)), InPort: uint32(n%floodPorts) + 1, Data: frame}
	b, _ = in.AppendTo(b, 0) // It fits.
	return b
}

// host returns the addresses of the n-th invented host.
func host(n uint64) Host {
	var mac [8]byte
	binary.BigEndian.PutUint64(mac[:], n)
	mac[2] = 0x06 // a prefix that nobody has been assigned
	return Host{openflow.MAC(mac[2:]), netip.AddrFrom4([4]byte{10, mac[5], mac[6], mac[7]})}
}

// announce appends a packet-in with the ARP announcement of a host.
func announce(b []byte, n uint64, h Host) []byte {
	return packetIn(b, n, packet.AppendARPRequest(nil, h.MAC, h.Addr, h.Addr, 0))
}

func newHosts(b []byte, n uint64, _ Target) []byte { return announce(b, n, host(n)) }

func claims(b []byte, n uint64, t Target) []byte {
	if len(t.Victims) == 0 {
		return newHosts(b, n, t)
	}
	return announce(b, n, t.Victims[n%uint64(len(t.Victims))])
}

// dialogue appends a packet from one of two hosts to the other.
func dialogue(b []byte, n uint64, _ Target) []byte {
	from, to := host(n%2), host(1-n%2)
	return packetIn(b, n%2, packet.AppendTCP(nil, packet.Frame{Src: from.MAC, Dst: to.MAC}, packet.TCPSegment{
		Src: netip.AddrPortFrom(from.Addr, 1024), Dst: netip.AddrPortFrom(to.Addr, 1024), Flags: packet.ACK,
	}))
}

// garbage appends a message with a valid header and a random body.
func garbage(b []byte, _ uint64, _ Target) []byte {
	const size = 64
	start := len(b)
	b = append(b, openflow.Version, byte(rand.Uint32()%30), 0, size)
	for len(b)-start < size {
		b = binary.NativeEndian.AppendUint32(b, rand.Uint32())
	}
	return b
}
