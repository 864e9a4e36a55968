package testbed

import (
	"net/netip"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// These are the ports of DHCP.
const (
	dhcpServer = 67
	dhcpClient = 68
)

// Radio is an interface of a host on which any number of simulated devices send and receive whole
// frames, without the kernel's IP stack.
type Radio struct {
	*frames

	mu      sync.Mutex
	hosts   map[netip.Addr]openflow.MAC // hosts whose ARP requests are answered
	answers map[dhcpv4.TransactionID]chan dhcpAnswer
	sinks   map[netip.Addr]func(payload []byte, at time.Time)
}

// dhcpAnswer is a DHCP server's message as it arrived.
type dhcpAnswer struct {
	message *dhcpv4.DHCPv4
	at      time.Time
}

// OpenRadio opens an interface of a host for simulated devices.
func OpenRadio(host Inside, name string) (r *Radio, err error) {
	r = &Radio{
		hosts: map[netip.Addr]openflow.MAC{}, answers: map[dhcpv4.TransactionID]chan dhcpAnswer{},
		sinks: map[netip.Addr]func([]byte, time.Time){},
	}
	r.frames, err = openFrames(host, name)
	if err != nil {
		return nil, err
	}
	r.listen(r.take)
	return r, nil
}

// take passes a frame to the device that it is for, and drops frames for nobody.
func (r *Radio) take(frame []byte, at time.Time) {
	h, err := packet.Parse(frame)
	if err == nil && h.Has(packet.ARP) {
		r.resolve(&h)
		return
	}
	if err != nil || !h.Has(packet.IPv4|packet.UDP) || h.End > len(frame) {
		return
	}
	payload := frame[h.Payload:h.End]
	if h.SrcPort == dhcpServer && h.DstPort == dhcpClient {
		r.answer(payload, at)
		return
	}
	r.mu.Lock()
	sink := r.sinks[h.Dst]
	r.mu.Unlock()
	if sink != nil {
		sink(payload, at)
	}
}

// resolve answers an ARP request for the address of a device that is here.
func (r *Radio) resolve(h *packet.Headers) {
	r.mu.Lock()
	mac, localhost := r.hosts[h.Dst]
	r.mu.Unlock()
	if localhost && h.ARPOp == packet.ARPRequest {
		_ = r.send(packet.AppendARPReply(nil, h, mac)) // A sender that gets no answer will ask again.
	}
}

// answerARP starts or stops answering ARP requests for an address.
func (r *Radio) answerARP(addr netip.Addr, mac openflow.MAC, localhost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if localhost {
		r.hosts[addr] = mac
	} else {
		delete(r.hosts, addr)
	}
}

func (r *Radio) answer(payload []byte, at time.Time) {
	m, err := dhcpv4.FromBytes(payload)
	if err != nil {
		return
	}
	r.mu.Lock()
	waiting := r.answers[m.TransactionID]
	r.mu.Unlock()
	if waiting == nil {
		return
	}
	select {
	case waiting <- dhcpAnswer{m, at}:
	default: // The device has more answers than it needs.
	}
}

// expect returns a channel that receives the answers to a transaction, until forget is called.
func (r *Radio) expect(id dhcpv4.TransactionID) (answers <-chan dhcpAnswer, forget func()) {
	c := make(chan dhcpAnswer, 8)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[id] = c
	return c, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.answers, id)
	}
}

// Hear calls f with the payload of every UDP packet to an address, and the time at which the kernel
// received it. A nil f ends that.
func (r *Radio) Hear(addr netip.Addr, f func(payload []byte, at time.Time)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f == nil {
		delete(r.sinks, addr)
		return
	}
	r.sinks[addr] = f
}
