package testbed

import (
	"net/netip"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// Ports of DHCP.
const (
	dhcpServer = 67
	dhcpClient = 68
)

// Radio is an interface of a host on which any number of simulated devices
// speak, by frames of their own: the kernel's IP stack has no part in it.
type Radio struct {
	*frames

	mu      sync.Mutex
	hosts   map[netip.Addr]openflow.MAC // whose ARP is answered
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

// take finds out for whom a frame is. What is for nobody is dropped.
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

// resolve answers a question for the address of a device that is here.
func (r *Radio) resolve(h *packet.Headers) {
	r.mu.Lock()
	mac, here := r.hosts[h.Dst]
	r.mu.Unlock()
	if here && h.ARPOp == packet.ARPRequest {
		_ = r.send(packet.AppendARPReply(nil, h, mac)) // who asks will ask again
	}
}

// inhabit has ARP for an address answered, or no longer.
func (r *Radio) inhabit(addr netip.Addr, mac openflow.MAC, here bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if here {
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
	default: // it has more answers than it can want
	}
}

// expect returns where the answers to a transaction will come, until forget is called.
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

// Hear has the payload of every UDP packet to an address handed to f, with the
// time at which the kernel received it; nil ends that.
func (r *Radio) Hear(addr netip.Addr, f func(payload []byte, at time.Time)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f == nil {
		delete(r.sinks, addr)
		return
	}
	r.sinks[addr] = f
}
