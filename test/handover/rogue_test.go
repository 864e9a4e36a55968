package handover

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/lab"
)

// serveDHCP makes a host answer every DHCP message that it receives, like a server that has an
// address for everybody, until the returned function is called.
func serveDHCP(t *testing.T, r *radio, host *lab.LiveHost, server netip.Addr) (stop func()) {
	t.Helper()
	return r.watch(func(f frame) {
		m := f.dhcp()
		if m == nil || f.to.Port() != dhcpServerPort {
			return
		}
		reply, err := dhcpv4.NewReplyFromRequest(m, dhcpv4.WithMessageType(dhcpv4.MessageTypeOffer),
			dhcpv4.WithYourIP(server.Next().AsSlice()), dhcpv4.WithServerIP(server.AsSlice()), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(server.AsSlice())))
		if err != nil {
			t.Error(err)
			return
		}
		if err := r.send(udpFrame(f.src, hostMAC(host, 0), netip.AddrPortFrom(server, dhcpServerPort), netip.AddrPortFrom(broadcastIP, dhcpClientPort), reply.ToBytes())); err != nil {
			t.Error(err)
		}
	})
}

// TestRogueDHCPServer runs a DHCP server on a host of the access network: for a client that no
// pool is for, whose question everybody receives, and without any question. None of its messages
// arrives; those of a server behind the border port do.
func TestRogueDHCPServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.MobilityOptions{Devices: 3, Interfaces: 1})
	w.floods()
	client, rogue, real := w.radio("dev1", 0), w.radio("dev3", 0), w.radio(w.domain.Gateway, 0)
	mac := hostMAC(w.lab.Host("dev1"), 0)
	liar, honest := netip.MustParseAddr("10.66.0.1"), netip.MustParseAddr("192.0.2.67")
	discover := func(wait time.Duration) (*dhcpv4.DHCPv4, error) {
		return client.ask(t.Context(), mac, newPhone(1, 1).message(dhcpv4.MessageTypeDiscover, mac), wait)
	}
	defer serveDHCP(t, rogue, w.lab.Host("dev3"), liar)()
	if reply, err := discover(2 * time.Second); !errors.Is(err, errSilence) {
		t.Errorf("somebody answers: %v, %v", reply, err)
	}
	defer serveDHCP(t, real, w.lab.Host(w.domain.Gateway), honest)()
	reply, err := discover(answerWithin)
	if err != nil || !reply.ServerIPAddr.Equal(honest.AsSlice()) {
		t.Errorf("behind the root: %v, %v", reply, err)
	}

	heard := make(chan frame, 1)
	defer client.watch(func(f frame) {
		if f.from == netip.AddrPortFrom(liar, dhcpServerPort) {
			select {
			case heard <- f:
			default:
			}
		}
	})()
	offer, err := dhcpv4.New(dhcpv4.WithMessageType(dhcpv4.MessageTypeAck), dhcpv4.WithYourIP(liar.Next().AsSlice()))
	if err != nil {
		t.Fatal(err)
	}
	offer.OpCode = dhcpv4.OpcodeBootReply
	for range 200 {
		for _, dst := range [][6]byte{broadcastMAC, mac} {
			if err := rogue.send(udpFrame(dst, hostMAC(w.lab.Host("dev3"), 0), netip.AddrPortFrom(liar, dhcpServerPort), netip.AddrPortFrom(broadcastIP, dhcpClientPort), offer.ToBytes())); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.eventually("the switch drops what the rogue sends", func() bool { return contains(w.flows("edge3"), "tp_src=67") && w.silenced("edge3") > 0 })
	if len(heard) > 0 {
		t.Error("the client has heard the rogue")
	}
	if n := strings.Count(w.log.String(), "a host answers DHCP"); n != 1 {
		t.Errorf("told %d times", n)
	}
}
