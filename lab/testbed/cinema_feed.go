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

// Feed sends numbered datagrams by the first interface of a host, whole frames, as an ingress
// gateway sends those of channels. So it stands for a channel's producer, at any rate. It is
// safe for concurrent use.
type Feed struct {
	out  *frames
	mac  openflow.MAC
	from netip.Addr

	mu      sync.Mutex
	numbers map[target]uint32
}

// Datagram is one to be sent.
type Datagram struct {
	From uint16 // the source port
	To   netip.AddrPort
	MAC  openflow.MAC // of To
	Size int          // of the payload, in bytes: 16 at least, which the number is in
}

type target struct {
	from uint16
	to   netip.AddrPort
}

// channelMAC is where channels' datagrams go. No interface has it.
var channelMAC = openflow.MAC{0x02, 0x00, 0xc6, 0x12, 0x00, 0x01}

// ChannelDatagram is one of the channel with a number.
func ChannelDatagram(number uint16, size int) Datagram {
	return Datagram{From: gatewayapi.SourcePort(number), To: netip.AddrPortFrom(cinema.DefaultMedia, gatewayapi.MediaPort), MAC: channelMAC, Size: size}
}

// OpenFeed opens the interface.
func OpenFeed(host *lab.LiveHost) (*Feed, error) {
	out, err := openFrames(host, "eth0")
	if err != nil {
		return nil, err
	}
	return &Feed{out: out, mac: host.MAC(), from: host.Addr(), numbers: map[target]uint32{}}, nil
}

// Close closes the interface.
func (f *Feed) Close() { f.out.Close() }

// lateness is what a feed catches up with.
const lateness = 20 * time.Millisecond

// Send sends one of each each interval, at even distances, until ctx ends. It returns how many
// of each it has sent: one that is late catches up by some, and leaves out the rest.
func (f *Feed) Send(ctx context.Context, interval time.Duration, all ...Datagram) (rounds uint64, err error) {
	each := interval / time.Duration(len(all))
	p := newPace(each)
	defer p.stop()
	p.burst = max(streamBurst, int(lateness/each))
	b := &feedBuffer{payload: make([]byte, 65536)}
	for p.wait(ctx) {
		if err := f.send(b, all[0]); err != nil {
			return rounds, err
		}
		for _, d := range all[1:] {
			p.wait(ctx) // a round that has begun is finished at once
			if err := f.send(b, d); err != nil {
				return rounds, err
			}
		}
		rounds++
	}
	return rounds, nil
}

// feedBuffer is where a sender makes its frames.
type feedBuffer struct{ frame, payload []byte }

func (f *Feed) send(b *feedBuffer, d Datagram) error {
	binary.BigEndian.PutUint32(b.payload[rtpHeader:], f.next(d))
	b.frame = packet.AppendUDP(b.frame[:0], packet.Frame{Dst: d.MAC, Src: f.mac}, packet.UDPDatagram{
		Src: netip.AddrPortFrom(f.from, d.From), Dst: d.To, Payload: b.payload[:d.Size],
	})
	return f.out.send(b.frame)
}

// next numbers the datagrams of a flow.
func (f *Feed) next(d Datagram) uint32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := target{d.From, d.To}
	f.numbers[t]++
	return f.numbers[t]
}
