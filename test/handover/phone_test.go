package handover

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/openflow"
)

// answerWithin is how long a simulated client waits: it never asks twice, so that every message
// counts.
const answerWithin = 30 * time.Second

// phone is a simulated device with a DHCP client.
type phone struct {
	id     string
	macs   []openflow.MAC // one for each radio; the first is its home MAC
	ip     netip.Addr
	server netip.Addr
	router netip.Addr
}

// newPhone returns the n-th phone, with interfaces that have their own addresses.
func newPhone(n, interfaces int) *phone {
	p := &phone{id: fmt.Sprintf("phone%d", n)}
	for i := range interfaces {
		mac := openflow.MAC{0x06, byte(i), 0, 0, 0, 0}
		binary.BigEndian.PutUint32(mac[2:], uint32(n))
		p.macs = append(p.macs, mac)
	}
	return p
}

// message returns a DHCP message of the phone's interface.
func (p *phone) message(kind dhcpv4.MessageType, mac openflow.MAC, o ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	m, err := dhcpv4.New(append([]dhcpv4.Modifier{
		dhcpv4.WithHwAddr(net.HardwareAddr(mac[:])), dhcpv4.WithMessageType(kind), dhcpv4.WithBroadcast(false),
		dhcpv4.WithRequestedOptions(dhcpv4.OptionSubnetMask, dhcpv4.OptionRouter, dhcpv4.OptionDomainNameServer),
	}, o...)...)
	if err != nil {
		panic(err) // fails only without a source of randomness
	}
	_, _ = rand.Read(m.TransactionID[:])
	return m
}

// refusal is an answer of another kind than wanted.
type refusal struct{ kind dhcpv4.MessageType }

func (r refusal) Error() string { return "answered by " + r.kind.String() }

// ask sends a message by a radio and waits for an answer of a kind.
func (p *phone) ask(ctx context.Context, r *radio, mac openflow.MAC, m *dhcpv4.DHCPv4, want dhcpv4.MessageType) (*dhcpv4.DHCPv4, error) {
	reply, err := r.ask(ctx, mac, m, answerWithin)
	if err != nil {
		return nil, err
	}
	if reply.MessageType() != want {
		return reply, refusal{reply.MessageType()}
	}
	return reply, nil
}

// join gets an address by DISCOVER and REQUEST.
func (p *phone) join(ctx context.Context, r *radio, mac openflow.MAC) error {
	offer, err := p.ask(ctx, r, mac, p.message(dhcpv4.MessageTypeDiscover, mac), dhcpv4.MessageTypeOffer)
	if err != nil {
		return err
	}
	request := p.message(dhcpv4.MessageTypeRequest, mac,
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(offer.ServerIdentifier())),
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(offer.YourIPAddr)))
	ack, err := p.ask(ctx, r, mac, request, dhcpv4.MessageTypeAck)
	if err != nil {
		return err
	}
	p.learn(ack)
	return nil
}

// move asks at a new place for the address that it has: INIT-REBOOT, like a client that has
// associated again.
func (p *phone) move(ctx context.Context, r *radio, mac openflow.MAC) error {
	before := p.ip
	ack, err := p.ask(ctx, r, mac, p.reboot(mac), dhcpv4.MessageTypeAck)
	if err != nil {
		return err
	}
	if p.learn(ack); p.ip != before {
		return fmt.Errorf("%s had %v and got %v", p.id, before, p.ip)
	}
	return nil
}

// reboot returns a REQUEST in the state INIT-REBOOT.
func (p *phone) reboot(mac openflow.MAC) *dhcpv4.DHCPv4 {
	return p.message(dhcpv4.MessageTypeRequest, mac, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(p.ip.AsSlice())))
}

// renew returns a REQUEST in the states RENEWING and REBINDING.
func (p *phone) renew(mac openflow.MAC) *dhcpv4.DHCPv4 {
	m := p.message(dhcpv4.MessageTypeRequest, mac)
	m.ClientIPAddr = p.ip.AsSlice()
	return m
}

func (p *phone) learn(ack *dhcpv4.DHCPv4) {
	p.ip, _ = netip.AddrFromSlice(ack.YourIPAddr.To4())
	p.server, _ = netip.AddrFromSlice(ack.ServerIdentifier().To4())
	if routers := ack.Router(); len(routers) > 0 {
		p.router, _ = netip.AddrFromSlice(routers[0].To4())
	}
}

func (p *phone) macTexts() []string {
	var all []string
	for _, m := range p.macs {
		all = append(all, m.String())
	}
	return all
}

// shortContext bounds the wait for an answer that must not come.
func shortContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), refusedWithin)
	t.Cleanup(cancel)
	return ctx
}
