package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/openflow"
)

// Station is a simulated device. It gets its address by DHCP, as any device does, and moves by
// requesting it at another place.
type Station struct {
	// Home is the hardware address that the device has in DHCP messages, and to hosts beyond its
	// edge switch.
	Home openflow.MAC
	// Radios holds, by radio, the addresses of those of its interfaces whose address is not Home.
	Radios map[*Radio]openflow.MAC
	// Retry is the time before a message is sent again, which then doubles; 0 means 250 ms.
	Retry time.Duration
	// IP is the address that the device was assigned.
	IP netip.Addr
}

// Exchange describes a request and the server's answer.
type Exchange struct {
	Sent     time.Time // time of the first message
	Answered time.Time
	Repeats  int // messages sent again because no answer arrived
}

// Took returns the time from the first message to the answer.
func (e Exchange) Took() time.Duration { return e.Answered.Sub(e.Sent) }

// Join holds the two exchanges of a device's first attachment.
type Join struct{ Discover, Request Exchange }

// stationLimit bounds the wait for an answer, whatever the caller's deadline.
const stationLimit = 15 * time.Second

// These are the errors of stations.
var (
	ErrNoAnswer  = errors.New("no DHCP server answers")
	ErrRefused   = errors.New("the DHCP server refuses the address")
	ErrOtherAddr = errors.New("the DHCP server gave another address than before")
)

// MAC returns the device's address at a radio.
func (s *Station) MAC(r *Radio) openflow.MAC {
	if m, ok := s.Radios[r]; ok {
		return m
	}
	return s.Home
}

// Join requests an address by DISCOVER and REQUEST.
func (s *Station) Join(ctx context.Context, r *Radio) (j Join, err error) {
	m, err := dhcpv4.NewDiscovery(s.Home[:])
	if err != nil {
		return j, err
	}
	offer, err := s.ask(ctx, r, m, &j.Discover, dhcpv4.MessageTypeOffer)
	if err != nil {
		return j, fmt.Errorf("discover: %w", err)
	}
	if m, err = dhcpv4.NewRequestFromOffer(offer); err != nil {
		return j, err
	}
	m.SetUnicast()
	ack, err := s.ask(ctx, r, m, &j.Request, dhcpv4.MessageTypeAck, dhcpv4.MessageTypeNak)
	if err != nil {
		return j, fmt.Errorf("request: %w", err)
	}
	return j, s.accept(ack, r)
}

// Move requests the device's address at another place.
func (s *Station) Move(ctx context.Context, to *Radio) (e Exchange, err error) {
	m, err := dhcpv4.New(
		dhcpv4.WithHwAddr(s.Home[:]), dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest),
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(s.IP.AsSlice())))
	if err != nil {
		return e, err
	}
	ack, err := s.ask(ctx, to, m, &e, dhcpv4.MessageTypeAck, dhcpv4.MessageTypeNak)
	if err != nil {
		return e, fmt.Errorf("request at %s: %w", to.name, err)
	}
	return e, s.accept(ack, to)
}

func (s *Station) accept(ack *dhcpv4.DHCPv4, r *Radio) error {
	if ack.MessageType() == dhcpv4.MessageTypeNak {
		return fmt.Errorf("%w: %s", ErrRefused, ack.Message())
	}
	addr, ok := netip.AddrFromSlice(ack.YourIPAddr.To4())
	if !ok || s.IP.IsValid() && addr != s.IP {
		return fmt.Errorf("%w: %v, it was %v", ErrOtherAddr, ack.YourIPAddr, s.IP)
	}
	s.IP = addr
	r.answerARP(s.IP, s.MAC(r), true)
	return nil
}

// Leave makes the device stop answering at a place.
func (s *Station) Leave(r *Radio) {
	r.answerARP(s.IP, s.MAC(r), false)
	r.Hear(s.IP, nil)
}

// ask sends a message until an answer of one of the kinds arrives.
func (s *Station) ask(ctx context.Context, r *Radio, m *dhcpv4.DHCPv4, e *Exchange, kinds ...dhcpv4.MessageType) (*dhcpv4.DHCPv4, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, stationLimit, errors.New("it was asked for long enough"))
	defer cancel()
	frame, err := dhcpFrame(s.MAC(r), m)
	if err != nil {
		return nil, err
	}
	answers, forget := r.expect(m.TransactionID)
	defer forget()
	wait := s.Retry
	if wait == 0 {
		wait = 250 * time.Millisecond
	}
	e.Sent = time.Now()
	if err := r.send(frame); err != nil {
		return nil, err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case a := <-answers:
			if slices.Contains(kinds, a.message.MessageType()) {
				e.Answered = a.at
				return a.message, nil
			}
		case <-timer.C:
			e.Repeats++
			wait *= 2
			timer.Reset(wait)
			if err := r.send(frame); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrNoAnswer, context.Cause(ctx))
		}
	}
}

// dhcpFrame returns the broadcast frame of a client's message.
func dhcpFrame(from openflow.MAC, m *dhcpv4.DHCPv4) ([]byte, error) {
	eth := &layers.Ethernet{SrcMAC: from[:], DstMAC: layers.EthernetBroadcast, EthernetType: layers.EthernetTypeIPv4}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: net.IPv4zero, DstIP: net.IPv4bcast}
	udp := &layers.UDP{SrcPort: dhcpClient, DstPort: dhcpServer}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, err
	}
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, eth, ip, udp, gopacket.Payload(m.ToBytes()))
	if err != nil {
		return nil, fmt.Errorf("make a DHCP frame: %w", err)
	}
	return b.Bytes(), nil
}
