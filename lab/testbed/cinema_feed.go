package testbed

import (
	"context"
	"encoding/binary"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/cinema"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// Feed sends numbered datagrams as whole frames through the first interface of a host, as an
// ingress gateway sends the datagrams of channels. So a Feed can take the place of a channel's
// producer at any rate. It is safe for concurrent use.
type Feed struct {
	out  *frames
	mac  openflow.MAC
	from netip.Addr

	mu      sync.Mutex
	numbers map[target]uint32
}

// Datagram describes a flow of datagrams.
type Datagram struct {
	From uint16 // source port
	To   netip.AddrPort
	MAC  openflow.MAC // MAC address of To
	Size int          // bytes of the payload, which include the number: at least 16
}

type target struct {
	from uint16
	to   netip.AddrPort
}

// channelMAC is the destination of channels' datagrams. No interface has it.
var channelMAC = openflow.MAC{0x02, 0x00, 0xc6, 0x12, 0x00, 0x01}

// ChannelDatagram returns the datagram of the channel with the given number.
func ChannelDatagram(number uint16, size int) Datagram {
	return Datagram{From: gatewayapi.SourcePort(number), To: netip.AddrPortFrom(cinema.DefaultMedia, gatewayapi.MediaPort), MAC: channelMAC, Size: size}
}

// OpenFeed opens the first interface of a host.
func OpenFeed(host *lab.LiveHost) (*Feed, error) {
	out, err := openFrames(host, "eth0")
	if err != nil {
		return nil, err
	}
	return &Feed{out: out, mac: host.MAC(), from: host.Addr(), numbers: map[target]uint32{}}, nil
}

// Close closes the interface.
func (f *Feed) Close() { f.out.Close() }

// maxLateness is the largest delay for which a feed makes up.
const maxLateness = 20 * time.Millisecond

// Send sends one datagram of each flow every interval, evenly spaced, until ctx ends. It returns
// the number of rounds. A late sender makes up for some rounds and leaves out the others.
func (f *Feed) Send(ctx context.Context, interval time.Duration, all ...Datagram) (rounds uint64, err error) {
	each := interval / time.Duration(len(all))
	p := newPace(each)
	defer p.stop()
	p.burst = max(streamBurst, int(maxLateness/each))
	b := &feedBuffer{payload: make([]byte, 65536)}
	for p.wait(ctx) {
		if err := f.send(b, all[0]); err != nil {
			return rounds, err
		}
		for _, d := range all[1:] {
			p.wait(ctx) // A round that has begun is completed at once.
			if err := f.send(b, d); err != nil {
				return rounds, err
			}
		}
		rounds++
	}
	return rounds, nil
}

// feedBuffer holds the buffers in which a sender builds its frames.
type feedBuffer struct{ frame, payload []byte }

func (f *Feed) send(b *feedBuffer, d Datagram) error {
	binary.BigEndian.PutUint32(b.payload[rtpHeader:], f.next(d))
	b.frame = packet.AppendUDP(b.frame[:0], packet.Frame{Dst: d.MAC, Src: f.mac}, packet.UDPDatagram{
		Src: netip.AddrPortFrom(f.from, d.From), Dst: d.To, Payload: b.payload[:d.Size],
	})
	return f.out.send(b.frame)
}

// next returns the number of the next datagram of a flow.
func (f *Feed) next(d Datagram) uint32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := target{d.From, d.To}
	f.numbers[t]++
	return f.numbers[t]
}
