package handover

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover"
)

// leaseInfo is the part of a lease that these tests read.
type leaseInfo struct {
	Device string     `json:"device"`
	IP     netip.Addr `json:"ip"`
	State  string     `json:"state"`
}

func (l leaseInfo) released() bool { return l.State == "released" }

func (w *world) leases() []leaseInfo {
	w.t.Helper()
	var all []leaseInfo
	w.get("leases", &all)
	return all
}

// lease returns a device's lease.
func (w *world) lease(device string) (leaseInfo, bool) {
	w.t.Helper()
	for _, l := range w.leases() {
		if l.Device == device {
			return l, true
		}
	}
	return leaseInfo{}, false
}

// handovers returns the latest records of a device, or of all devices if it is empty, the latest
// first.
func (w *world) handovers(device string, limit int) []handover.Record {
	w.t.Helper()
	var all []handover.Record
	w.get(fmt.Sprintf("handovers?device=%s&limit=%d", device, limit), &all)
	return all
}

// installed identifies a rule for a comparison: by its switch and cookie.
type installed struct{ sw, cookie, priority string }

// ledger returns the rules for devices that the switches have according to the controller, and how
// many of them are unconfirmed.
func (w *world) ledger() (all map[installed]string, unconfirmed int) {
	w.t.Helper()
	var rules []struct {
		Switch    string `json:"switch"`
		Owner     string `json:"owner"`
		Name      string `json:"name"`
		Priority  uint16 `json:"priority"`
		Cookie    string `json:"cookie"`
		Confirmed bool   `json:"confirmed"`
	}
	if err := w.rest.Get(context.Background(), "/api/v1/network/rules", &rules); err != nil {
		w.t.Fatal(err)
	}
	all = map[installed]string{}
	for _, r := range rules {
		if r.Owner != handover.Name {
			continue
		}
		if !r.Confirmed {
			unconfirmed++
		}
		all[installed{r.Switch, hexDigits(r.Cookie), fmt.Sprint(r.Priority)}] = r.Name
	}
	return all, unconfirmed
}

func hexDigits(s string) string {
	return strings.TrimLeft(strings.TrimPrefix(strings.ToLower(s), "0x"), "0")
}

var ruleForm = regexp.MustCompile(`cookie=0x([0-9a-f]+),.*priority=(\d+),(\S+) actions=(\S+)`)

// found is a rule in a switch.
type found struct {
	installed
	match, actions string
}

// inSwitches returns the rules of one owner in the switches: those with the given cookies.
func (w *world) inSwitches() []found {
	w.t.Helper()
	var all []found
	for _, s := range w.switches() {
		dpid := openflow.DatapathID(w.lab.Switch(s).DPID()).String()
		for line := range strings.Lines(w.flows(s)) {
			if m := ruleForm.FindStringSubmatch(line); m != nil {
				all = append(all, found{installed{dpid, hexDigits(m[1]), m[2]}, m[3], m[4]})
			}
		}
	}
	return all
}

// The priorities of rules for devices lie between these two offsets in the stage
// device; those that lead packets to a device have downPriority.
const (
	lowestOffset, downOffset, highestOffset = rule.DeviceUp, rule.DeviceDown, rule.DeviceBranch
)

var downPriority = fmt.Sprint(int(network.StageDevice.Base()) + downOffset)

func (f found) ofDevice() bool {
	p, err := strconv.Atoi(f.priority)
	base := int(network.StageDevice.Base())
	return err == nil && p >= base+lowestOffset && p <= base+highestOffset
}

// rulesOf returns the rules for an address in all switches: "switch match actions".
func (w *world) rulesOf(ip netip.Addr) []string {
	w.t.Helper()
	var all []string
	for _, f := range w.inSwitches() {
		for _, field := range strings.Split(f.match, ",") {
			if !f.ofDevice() {
				break
			}
			if field == "nw_dst="+ip.String() || field == "nw_src="+ip.String() {
				all = append(all, fmt.Sprintf("%s %s -> %s", f.sw, f.match, f.actions))
			}
		}
	}
	slices.Sort(all)
	return all
}

// ownerBits returns the magic number and the hash of the owner's name in a cookie.
func ownerBits(cookie string) string {
	return fmt.Sprintf("%016s", cookie)[:6]
}

// compareRules checks that the switches have exactly the rules of the ledger, as soon as no change
// is in progress, and returns how many there are.
func (w *world) compareRules() int {
	w.t.Helper()
	var wrong []string
	rules := 0
	w.poll(waitLimit, func() bool {
		rules, wrong = w.differences()
		return len(wrong) == 0
	})
	for _, text := range wrong {
		w.t.Error(text)
	}
	return rules
}

// differences returns the differences between the ledger and the switches.
func (w *world) differences() (rules int, wrong []string) {
	w.t.Helper()
	want, unconfirmed := w.ledger()
	if unconfirmed > 0 {
		wrong = append(wrong, fmt.Sprintf("%d rules are not confirmed", unconfirmed))
	}
	owner := ""
	for r := range want {
		owner = ownerBits(r.cookie)
	}
	got := map[installed]bool{}
	for _, f := range w.inSwitches() {
		if ownerBits(f.cookie) != owner {
			continue
		}
		got[f.installed] = true
		if _, ok := want[f.installed]; !ok {
			wrong = append(wrong, fmt.Sprintf("the switch %s has a rule that the ledger has not: %s -> %s", f.sw, f.match, f.actions))
		}
	}
	for r, name := range want {
		if !got[r] {
			wrong = append(wrong, fmt.Sprintf("the switch %s lacks a rule of %s, cookie %s", r.sw, name, r.cookie))
		}
	}
	return len(want), wrong
}

// leaked fails for every address in a device rule that no lease has.
func (w *world) leaked() {
	w.t.Helper()
	held := map[string]bool{}
	for _, l := range w.leases() {
		if !l.released() {
			held[l.IP.String()] = true
		}
	}
	for _, f := range w.inSwitches() {
		for _, field := range strings.Split(f.match, ",") {
			for _, key := range []string{"nw_dst=", "nw_src="} {
				ip, ok := strings.CutPrefix(field, key)
				if a, err := netip.ParseAddr(ip); ok && err == nil && w.domain.Prefix.Contains(a) && f.ofDevice() && !held[ip] {
					w.t.Errorf("%s has a rule for %s, which nobody holds: %s", f.sw, ip, f.match)
				}
			}
		}
	}
}

// probePort is the UDP port of packets that probe where a device is served.
const probePort = 4444

// delivered sends a packet from the server to an address and returns where it arrived, by radio
// and destination MAC. If it arrives nowhere it sends another one.
func (w *world) delivered(radios []*radio, ip netip.Addr) (where []string) {
	w.t.Helper()
	w.poll(waitLimit, func() bool {
		where = w.deliveredWithin(radios, ip, 2*time.Second)
		return len(where) > 0
	})
	return where
}

func (w *world) deliveredWithin(radios []*radio, ip netip.Addr, wait time.Duration) []string {
	w.t.Helper()
	w.probes++
	number := w.probes
	came := make(chan string, 2*len(radios))
	for i, r := range radios {
		stop := r.watch(func(f frame) {
			if f.to == netip.AddrPortFrom(ip, probePort) && len(f.payload) == 4 && binary.BigEndian.Uint32(f.payload) == number {
				came <- fmt.Sprintf("%d %v", i, f.dst)
			}
		})
		defer stop()
	}
	if w.prober == nil {
		w.prober = w.udp(w.lab.Host(w.domain.Server), netip.AddrPort{})
		w.t.Cleanup(func() { _ = w.prober.Close() })
	}
	if _, err := w.prober.WriteToUDPAddrPort(binary.BigEndian.AppendUint32(nil, number), netip.AddrPortFrom(ip, probePort)); err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for {
		select {
		case where := <-came:
			all = append(all, where)
			wait = 20 * time.Millisecond // for a copy that should not arrive
		case <-time.After(wait):
			slices.Sort(all)
			return all
		}
	}
}

// servedAt checks that an address's packets arrive at a place and nowhere else. A switch confirms
// a rule before it stops using its cached decisions, so the first packets may still take the old
// path.
func (w *world) servedAt(radios []*radio, ip netip.Addr, want string) {
	w.t.Helper()
	var where []string
	if !w.poll(waitLimit, func() bool {
		where = w.deliveredWithin(radios, ip, 200*time.Millisecond)
		return slices.Equal(where, []string{want})
	}) {
		w.t.Errorf("packets to %v come out at %v, want %v", ip, where, want)
	}
}

// sends sends a packet from a phone to the server by a radio and returns the source MAC that the
// gateway saw; ok is false if the packet has not arrived within the time.
func (w *world) sends(p *phone, r *radio, mac openflow.MAC, wait time.Duration) (seen openflow.MAC, ok bool) {
	w.t.Helper()
	if w.gateway == nil {
		w.gateway = w.radio(w.domain.Gateway, 0)
	}
	w.probes++
	number := w.probes
	came := make(chan openflow.MAC, 4)
	stop := w.gateway.watch(func(f frame) {
		if f.from.Addr() == p.ip && f.to.Port() == probePort && len(f.payload) == 4 && binary.BigEndian.Uint32(f.payload) == number {
			came <- f.src
		}
	})
	defer stop()
	to := netip.AddrPortFrom(w.domain.ServerAddr, probePort)
	b := udpFrame(hostMAC(w.lab.Host(w.domain.Gateway), 0), mac, netip.AddrPortFrom(p.ip, probePort), to, binary.BigEndian.AppendUint32(nil, number))
	if err := r.send(b); err != nil {
		w.t.Fatal(err)
	}
	select {
	case seen = <-came:
		return seen, true
	case <-time.After(wait):
		return seen, false
	}
}

// register registers phones.
func (w *world) register(class string, phones ...*phone) {
	w.t.Helper()
	for _, p := range phones {
		if err := w.do(http.MethodPut, "devices/"+p.id, handover.DeviceSpec{MACs: p.macTexts(), Class: class, Pool: pool}, nil); err != nil {
			w.t.Fatalf("register %s: %s", p.id, problemText(err))
		}
	}
}

// radios opens the interfaces of a host, one after the other.
func (w *world) radios(host string, n int) []*radio {
	w.t.Helper()
	var all []*radio
	for i := range n {
		all = append(all, w.radio(host, i))
	}
	return all
}

// place returns a place in the form that delivered returns.
func place(radio int, mac openflow.MAC) string { return fmt.Sprintf("%d %v", radio, mac) }

func contains(text, part string) bool { return strings.Contains(text, part) }

// fieldOf returns the value of a field of a match as ovs-ofctl prints it.
func fieldOf(match, key string) (string, bool) {
	for _, field := range strings.Split(match, ",") {
		if v, ok := strings.CutPrefix(field, key); ok {
			return v, true
		}
	}
	return "", false
}

// done reports whether a device's move to where a radio is has ended.
func (w *world) done(device string, r *radio) bool {
	w.t.Helper()
	return w.servedBy(device, r.at())
}

// servedBy reports whether a device's last move has ended at a port.
func (w *world) servedBy(device string, at network.PortRef) bool {
	w.t.Helper()
	all := w.handovers(device, 1)
	return len(all) == 1 && all[0].Result == handover.ResultDone && all[0].To != nil && all[0].To.Port.PortRef == at
}
