package lease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/openflow"
)

// exchange is one request to a server, including its retransmissions.
type exchange struct {
	kind    dhcpv4.MessageType
	xid     dhcpv4.TransactionID
	started time.Time
	// client is the address that the device has (ciaddr); invalid before it has one.
	client netip.Addr
	// server and serverMAC are the addresses of the only server that is asked. If server is invalid,
	// any server may answer.
	server    netip.Addr
	serverMAC openflow.MAC
	options   []dhcpv4.Option
	// tries is how often the message is sent; 0 means until the context ends.
	tries int
	// wait is the first wait for an answer; 0 means Config.Retransmit.
	wait time.Duration
}

// begin returns an exchange that starts now.
func (c *Client) begin(kind dhcpv4.MessageType) exchange {
	x := exchange{kind: kind, started: time.Now()}
	if id, err := dhcpv4.GenerateTransactionID(); err == nil { // fails only if the random source does, which ends the program
		x.xid = id
	}
	return x
}

// exchange sends a message until an answer of one of the kinds arrives.
func (c *Client) exchange(ctx context.Context, p Port, x exchange, kinds ...dhcpv4.MessageType) (Reply, error) {
	wait := x.wait
	if wait == 0 {
		wait = jitter(c.cfg.Retransmit)
	}
	for try := 0; x.tries == 0 || try < x.tries; try++ {
		f, err := c.frame(x, p.MAC, try)
		if err != nil {
			return Reply{}, err
		}
		if err := p.Send(f); err != nil {
			return Reply{}, err
		}
		r, err := c.answer(ctx, p, x, wait, kinds)
		if err == nil || !errors.Is(err, ErrSilence) {
			return r, err
		}
		wait = min(jitter(2*wait), c.cfg.RetransmitMax)
	}
	return Reply{}, ErrSilence
}

// answer waits for an answer to the exchange.
func (c *Client) answer(ctx context.Context, p Port, x exchange, wait time.Duration, kinds []dhcpv4.MessageType) (Reply, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		f, err := p.Receive(waiting)
		switch {
		case ctx.Err() != nil:
			return Reply{}, ctx.Err()
		case waiting.Err() != nil:
			return Reply{}, ErrSilence
		case err != nil:
			return Reply{}, err
		}
		r, err := parse(f.Data, f.ChecksumMissing)
		if err != nil {
			continue // messages to other clients arrive here, too
		}
		m := r.Message
		if m.TransactionID != x.xid || !slices.Equal(m.ClientHWAddr, net.HardwareAddr(c.cfg.MAC[:])) {
			continue
		}
		if slices.Contains(kinds, m.MessageType()) {
			return r, nil
		}
	}
}

// requested holds the options that the client requests, because the device can use them.
var requested = []dhcpv4.OptionCode{
	dhcpv4.OptionSubnetMask, dhcpv4.OptionRouter, dhcpv4.OptionDomainNameServer, dhcpv4.OptionDomainName,
	dhcpv4.OptionInterfaceMTU, dhcpv4.OptionClasslessStaticRoute,
	dhcpv4.OptionRenewTimeValue, dhcpv4.OptionRebindingTimeValue,
}

// frame returns a frame with the exchange's message, signed anew. The message asks for an answer to the
// interface's own address. Every other retransmission asks for a broadcast, for servers that would
// send to the virtual interface's address.
func (c *Client) frame(x exchange, src openflow.MAC, try int) ([]byte, error) {
	now := time.Now()
	m, err := dhcpv4.New(
		dhcpv4.WithTransactionID(x.xid),
		dhcpv4.WithHwAddr(net.HardwareAddr(c.cfg.MAC[:])),
		dhcpv4.WithMessageType(x.kind),
		dhcpv4.WithOption(dhcpv4.OptClientIdentifier(append([]byte{1}, c.cfg.MAC[:]...))),
		dhcpv4.WithBroadcast(!x.client.IsValid() && try%2 == 1),
	)
	if err != nil {
		return nil, fmt.Errorf("make a DHCP message: %w", err)
	}
	if x.kind != dhcpv4.MessageTypeRelease {
		m.UpdateOption(dhcpv4.OptParameterRequestList(requested...))
		m.UpdateOption(dhcpv4.OptMaxMessageSize(1500))
		if c.cfg.HostName != "" {
			m.UpdateOption(dhcpv4.OptHostName(c.cfg.HostName))
		}
	}
	for _, o := range x.options {
		m.UpdateOption(o)
	}
	m.NumSeconds = uint16(min(now.Sub(x.started)/time.Second, math.MaxUint16))
	e := addresses{dst: broadcast, src: src, to: limitedBroadcast, from: netip.IPv4Unspecified()}
	if x.client.IsValid() {
		m.ClientIPAddr = x.client.AsSlice()
		e.from = x.client
	}
	if x.server.IsValid() {
		e.dst, e.to = x.serverMAC, x.server
	}
	if c.cfg.Sign != nil {
		if err := c.cfg.Sign(m, src, now); err != nil {
			return nil, fmt.Errorf("sign a DHCP message: %w", err)
		}
	}
	return frame(e, m), nil
}
