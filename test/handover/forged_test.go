package handover

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover"
)

// liarMAC is the address that a host of these tests claims to be the gateway's.
var liarMAC = openflow.MAC{0x06, 0xee, 0, 0, 0, 1}

// ordinary makes a host ask for an address like any DHCP client, and use it on eth0.
func (w *world) ordinary(host string, n int) *phone {
	w.t.Helper()
	p := newPhone(n, 1)
	p.macs[0] = hostMAC(w.lab.Host(host), 0)
	w.register("open", p)
	if err := p.join(w.t.Context(), w.radio(host, 0), p.macs[0]); err != nil {
		w.t.Fatal(err)
	}
	w.run(host, "ip", "addr", "add", netip.PrefixFrom(p.ip, w.domain.Prefix.Bits()).String(), "dev", "eth0")
	w.run(host, "ip", "route", "replace", "default", "via", p.router.String())
	return p
}

// forge makes a host claim twice a second, in every way that others believe, that an address is at
// liarMAC. It returns how many packets that were.
func (w *world) forge(r *radio, whose netip.Addr, victims map[openflow.MAC]netip.Addr, rounds int) (said int) {
	w.t.Helper()
	say := func(dst openflow.MAC, op uint16, tha openflow.MAC, tpa netip.Addr) {
		if err := r.send(arpFrame(dst, liarMAC, op, liarMAC, whose, tha, tpa)); err != nil {
			w.t.Errorf("forging: %v", err)
		}
		said++
	}
	nobody := netip.MustParseAddr("10.20.250.250")
	tick := time.NewTicker(time.Second / 2)
	defer tick.Stop()
	for range rounds {
		say(broadcastMAC, arpReply, broadcastMAC, whose)
		for _, target := range []netip.Addr{whose, nobody} {
			say(broadcastMAC, arpRequest, openflow.MAC{}, target)
		}
		for mac, ip := range victims {
			say(mac, arpReply, mac, ip)
			for _, target := range []netip.Addr{ip, nobody} {
				say(mac, arpRequest, openflow.MAC{}, target)
			}
		}
		<-tick.C
	}
	return said
}

// TestForgedARP lets a host of the access network claim that the gateway is at its own address,
// beside a device with signed requests and an ordinary client. Neither believes it, and the
// packets of both continue to arrive. The controller reports once where the claims come from, and
// at the end how many there were; the switch has dropped most of them.
func TestForgedARP(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.MobilityOptions{Devices: 3, Interfaces: 1})
	w.put("classes/open", handover.ClassSpec{Policy: "saving", Trigger: "open"})
	d := w.device(selfbuild.Binary(t), "dev1", "", 1)
	plain := w.ordinary("dev2", 2)
	victims := map[openflow.MAC]netip.Addr{
		hostMAC(w.lab.Host("dev1"), 0): d.ip, mustMAC(vniMAC): d.ip, plain.macs[0]: plain.ip,
	}
	streams := map[string]*stream{}
	for i, host := range []string{"dev1", "dev2"} {
		to := netip.AddrPortFrom(w.domain.ServerAddr, uint16(5001+i))
		streams[host] = w.streamBetween(host, w.domain.Server, to)
		streams[host].goesOn(host + " sends")
	}
	liar := w.radio("dev3", 0)
	forged := w.forge(liar, w.domain.GatewayAddr, victims, 5)
	if n := w.silenced("edge3"); n == 0 {
		t.Errorf("the switch has dropped none of %d packets", forged)
	}
	forged += w.forge(liar, w.domain.GatewayAddr, victims, 5)
	var status handover.Status
	if w.get("status", &status); !slices.ContainsFunc(status.Errors, func(e string) bool { return contains(e, liar.at().String()) && contains(e, "forges ARP") }) {
		t.Errorf("the status does not tell: %v", status.Errors)
	}
	for host, s := range streams {
		s.goesOn(host + " still sends")
		t.Logf("%s: %v", host, s.stop())
		if n := w.run(host, "ip", "neigh"); strings.Contains(n, liarMAC.String()) {
			t.Errorf("%s believes the liar: %s", host, n)
		}
	}
	w.eventually("the controller tells that it is over", func() bool { return contains(w.log.String(), "ARP is no longer forged") })
	log := w.log.String()
	if n := strings.Count(log, "ARP is forged at a port"); n != 1 {
		t.Errorf("told %d times", n)
	}
	// The first ones came before the rule. Open vSwitch counts some packets of a rule for the one
	// before it, or after.
	over := regexp.MustCompile(`no longer forged.* port=` + liar.at().String() + ` dropped=(\d+)`).FindStringSubmatch(log)
	if over == nil {
		t.Fatalf("the log does not say how much was dropped of %v", liar.at())
	}
	if n := number(t, over[1]); n < forged/2 || n > forged*2 {
		t.Errorf("%d dropped of %d that were forged", n, forged)
	}
	if contains(w.flows("edge3"), silences) {
		t.Error("the switch still has rules against it")
	}
}

// silences is the priority of the rules that drop forged packets.
var silences = fmt.Sprintf("priority=%d,", network.StageAdmit.Base()+rule.AdmitSilence)

// silenced returns how many packets a switch has dropped by rules that last for a while.
func (w *world) silenced(name string) (n int) {
	for line := range strings.Lines(w.flows(name)) {
		if found := packetsOf.FindStringSubmatch(line); found != nil && contains(line, silences) {
			n += number(w.t, found[1])
		}
	}
	return n
}

func number(t testing.TB, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

var packetsOf = regexp.MustCompile(`n_packets=(\d+)`)
