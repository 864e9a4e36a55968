package handover

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/dhcp"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// Rules survive the controller: after a restart they are unchanged, and the device has its lease.
func TestRestart(t *testing.T) {
	r := newRig(t, nil)
	car, phone := r.attach(edge3, mac1), r.attach(edge5, mac3)
	r.idle()
	before := map[string][]network.Rule{}
	for _, key := range []string{"device/car", "device/phone"} {
		before[key] = r.w.Program(key).Rules
	}
	r.stop()

	// The ledger is empty again; the switches' tables are unchanged.
	r.w.Restart()
	next := start(t, r.w, r.st, nil)
	next.at(car, mac1, edge3, mac1)
	next.at(phone, mac3, edge5, mac3)
	for key, want := range before {
		if c := diffRules(want, r.w.Program(key).Rules); c != (Changes{}) {
			t.Errorf("%s changed by the restart: %+v", key, c)
		}
	}
	if r.w.AtReady() == nil {
		t.Error("the owner was not made ready: rules of devices that are gone stay for ever")
	}
	if got := next.move(edge4, mac2, car); got != car {
		t.Errorf("after the restart it got %v, before it had %v", got, car)
	}
	next.idle()
	next.at(car, mac1, edge4, mac2)
}

// A start does not wait without bound for a switch that does not come back, and serves its device
// when it does.
func TestRestartWithoutTheEdge(t *testing.T) {
	r := newRig(t, nil)
	car, phone := r.attach(edge3, mac1), r.attach(edge5, mac3)
	r.idle()
	r.stop()
	w := newWorld(nil)
	w.connect([]openflow.DatapathID{1, 2, 4, 5}, treeLinks)
	next := start(t, w, r.st, func(s *Settings) { s.Settle = 700 * time.Millisecond })
	next.at(phone, mac3, edge5, mac3)
	if errs := next.api.status().Errors; len(errs) != 1 {
		t.Errorf("errors %q, want one about the device whose switch is missing", errs)
	}
	w.connect([]openflow.DatapathID{1, 2, 3, 4, 5}, treeLinks)
	next.NetworkChanged(network.Event{Kind: network.LinkUp})
	next.eventually("the device to be served again", func() bool { return slices.Contains(w.kept(), "car") })
	next.idle()
	next.at(car, mac1, edge3, mac1)
}

// If a path fails the rules use another one; if there is none they stay, and the service reports
// it.
func TestReroute(t *testing.T) {
	links := slices.Concat(treeLinks, cable(ref(5, 15), ref(4, 15)))
	st := newStore(t)
	r := start(t, newWorld(links), st, nil)
	ip := r.attach(edge4, mac1)
	r.idle()
	r.at(ip, mac1, edge4, mac1)
	r.w.connect([]openflow.DatapathID{1, 2, 3, 4, 5}, slices.Concat(treeLinks[:4], treeLinks[6:], links[8:])) // without 2-4
	r.NetworkChanged(network.Event{Kind: network.LinkDown})
	r.eventually("a record of the new way", func() bool { return len(r.api.records(handoversInput{Kind: "reroute"})) == 1 })
	r.idle()
	r.at(ip, mac1, edge4, mac1)
	r.w.connect([]openflow.DatapathID{1, 2, 3, 4, 5}, treeLinks[:4])
	r.NetworkChanged(network.Event{Kind: network.LinkDown})
	r.eventually("the status to tell", func() bool { return len(r.api.status().Errors) == 1 })
	r.w.connect([]openflow.DatapathID{1, 2, 3, 4, 5}, links)
	r.NetworkChanged(network.Event{Kind: network.LinkUp})
	r.eventually("the device to be served again", func() bool { return len(r.api.status().Errors) == 0 })
	r.idle()
	r.at(ip, mac1, edge4, mac1)
}

func TestARP(t *testing.T) {
	r := newRig(t, nil)
	ip := r.attach(edge3, mac2)
	r.idle()
	a := netip.MustParseAddr
	stranger := mac("06:00:00:00:00:99")
	for _, tt := range []struct {
		name        string
		at          network.PortRef
		src         openflow.MAC
		sender, who netip.Addr
		want        openflow.MAC // zero: no answer
		verdict     network.Verdict
	}{
		{"device asks for its gateway", edge3, mac2, ip, a("10.8.0.1"), routerMAC, network.Stop},
		{"without an address yet", edge4, mac1, netip.IPv4Unspecified(), a("10.8.0.1"), routerMAC, network.Stop},
		{"the router asks for a device", uplink, routerMAC, a("10.8.0.1"), ip, mac1, network.Stop},
		{"a neighbour of the device", edge4, stranger, a("10.8.9.9"), ip, mac1, network.Stop},
		{"the device, whether somebody has its address", edge3, mac2, netip.IPv4Unspecified(), ip, openflow.MAC{}, network.Stop},
		{"the device announces itself", edge3, mac2, ip, ip, openflow.MAC{}, network.Stop},
		{"an address that nobody has", edge3, mac2, ip, a("10.8.1.200"), openflow.MAC{}, network.Stop},
		{"the same, asked by a stranger", edge4, stranger, a("10.8.9.9"), a("10.8.1.200"), openflow.MAC{}, network.Continue},
		{"an address of elsewhere", edge3, mac2, ip, a("192.0.2.1"), openflow.MAC{}, network.Continue},
		{"the gateway, from beyond the border port", uplink, routerMAC, a("10.8.0.7"), a("10.8.0.1"), openflow.MAC{}, network.Continue},
		{"on a link between switches", ref(2, 12), mac2, ip, a("10.8.0.1"), openflow.MAC{}, network.Continue},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for len(r.w.sent) > 0 {
				<-r.w.sent
			}
			v := r.in(tt.at, packet.AppendARPRequest(nil, tt.src, tt.sender, tt.who, 0))
			if v != tt.verdict {
				t.Errorf("verdict %v", v)
			}
			var got openflow.MAC
			for len(r.w.sent) > 0 {
				f := <-r.w.sent
				var h packet.Headers
				err := h.Parse(f.data)
				if h.ARPOp == packet.ARPRequest {
					continue // the service measures the latency to the device
				}
				if err != nil || f.at != tt.at || h.EthDst != tt.src || h.Src != tt.who || h.ARPOp != packet.ARPReply {
					t.Errorf("answer at %v: %+v", f.at, h)
				}
				got = h.ARPSHA
			}
			if got != tt.want {
				t.Errorf("answered with %v, want %v", got, tt.want)
			}
		})
	}
}

// A router that is not configured is found at the border port, and its ARP is accepted nowhere
// else.
func TestGatewayIsFound(t *testing.T) {
	r := newRig(t, func(s *Settings) {
		alter(s.Pools, "campus", func(p *registry.Pool) { p.GatewayMAC = openflow.MAC{} })
	})
	gw := netip.MustParseAddr("10.8.0.1")
	question := func() bool {
		select {
		case f := <-r.w.sent:
			var h packet.Headers
			return f.at == uplink && h.Parse(f.data) == nil && h.ARPOp == packet.ARPRequest && h.Dst == gw
		default:
			return false
		}
	}
	r.eventually("the router to be asked for", question)
	reply := func(at network.PortRef, m openflow.MAC) {
		r.in(at, packet.AppendARP(nil, packet.Frame{Dst: serverMAC, Src: m}, packet.ARPMessage{
			Op: packet.ARPReply, SenderMAC: m, Sender: gw, TargetMAC: serverMAC, Target: netip.IPv4Unspecified(),
		}))
	}
	reply(edge3, mac1)
	if got := r.guards.gateways.lookup(gw); !got.IsZero() {
		t.Errorf("a device is taken for the router: %v", got)
	}
	reply(uplink, routerMAC)
	if got := r.guards.gateways.lookup(gw); got != routerMAC {
		t.Errorf("the router is %v, want %v", got, routerMAC)
	}
}

// A router that could not be asked for, because the switch of its border port was not connected,
// is asked for as soon as the switch is back; a known router is not.
func TestGatewaysAreAskedForWhenARootIsBack(t *testing.T) {
	g, now := newGateways(), time.Now()
	known, unknown := netip.MustParseAddr("10.8.0.1"), netip.MustParseAddr("10.9.0.1")
	g.setWanted(map[netip.Addr]string{known: "", unknown: ""})
	for _, want := range []int{2, 0} {
		if due := g.due(now); len(due) != want {
			t.Fatalf("%v are asked for, want %d", due, want)
		}
	}
	g.learn(known, routerMAC, "")
	p := &placement{core: &core{settings: Settings{Borders: []Border{{At: uplink}}}}}
	s := Service{core: p.core, placement: p, guards: &guards{core: p.core, placement: p, gateways: g}, packets: &packetHandler{ports: map[network.PortRef]association{}}}
	s.NetworkChanged(network.Event{Kind: network.PortUp, Port: edge3})
	if due := g.due(now); len(due) != 0 {
		t.Errorf("%v are asked for because of an edge port", due)
	}
	s.NetworkChanged(network.Event{Kind: network.PortUp, Port: uplink})
	ctx, cancel := context.WithTimeout(t.Context(), answerTime)
	g.asking.Run(ctx, 0, 0, func(context.Context) { // at once
		if due := g.due(now); len(due) != 1 {
			t.Errorf("%v are asked for, want the one that is not known", due)
		}
		cancel()
	})
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Error("nobody asks")
	}
}

func TestWhoMayMove(t *testing.T) {
	key := slices.Repeat([]byte{7}, 32)
	r := newRig(t, func(s *Settings) {
		alter(s.Devices, "car", func(d *registry.Device) { d.Key, d.Class = key, "signed" })
		alter(s.Devices, "phone", func(d *registry.Device) { d.Class = "desk" }) // at edges 3 and 4 only
	})
	phone := r.attach(edge3, mac3)
	r.send(edge5, mac3, request(mac3, phone))
	if got := r.answer(edge5, dhcpv4.MessageTypeAck, 100*time.Millisecond); got.IsValid() {
		t.Error("moved to a port where it may not be")
	}
	r.idle()
	r.at(phone, mac3, edge3, mac3)
	sign := func(m *dhcpv4.DHCPv4, src openflow.MAC) *dhcpv4.DHCPv4 {
		if err := dhcp.Sign(key, m, src, time.Now()); err != nil {
			t.Fatal(err)
		}
		return m
	}
	r.send(edge4, mac1, sign(discover(mac1), mac1))
	car := r.answer(edge4, dhcpv4.MessageTypeOffer, answerTime)
	r.send(edge4, mac1, sign(request(mac1, car), mac1))
	if got := r.answer(edge4, dhcpv4.MessageTypeAck, answerTime); got != car {
		t.Fatalf("signed, and got %v", got)
	}
	r.send(edge5, mac2, request(mac2, car))
	if got := r.answer(edge5, dhcpv4.MessageTypeAck, 100*time.Millisecond); got.IsValid() {
		t.Error("moved without a signature")
	}
	r.idle()
	r.at(car, mac1, edge4, mac1)
}

// On cables a MAC address that appears at a second port is not accepted as the device's.
func TestTwoPortsRefused(t *testing.T) {
	r := newRig(t, func(s *Settings) { s.Claims = ClaimRefuse })
	ip := r.attach(edge3, mac1)
	r.send(edge4, mac1, request(mac1, ip))
	if got := r.answer(edge4, dhcpv4.MessageTypeAck, 100*time.Millisecond); got.IsValid() {
		t.Error("moved, although the port that it was at is up")
	}
	if got := r.move(edge4, mac2, ip); got != ip {
		t.Error("another interface of the device may not move")
	}
	r.idle()
	r.w.SetDown(edge4, true)
	if got := r.move(edge5, mac2, ip); got != ip {
		t.Error("it may not move although its port is down")
	}
}

// A request that arrives before the links are known is answered when they are.
func TestRequestBeforeTheLinksAreKnown(t *testing.T) {
	w := newWorld(nil)
	r := start(t, w, newStore(t), nil)
	r.send(edge3, mac1, discover(mac1))
	ip := r.answer(edge3, dhcpv4.MessageTypeOffer, answerTime)
	r.send(edge3, mac1, request(mac1, ip))
	if got := r.answer(edge3, dhcpv4.MessageTypeAck, 50*time.Millisecond); got.IsValid() {
		t.Error("acknowledged without a way")
	}
	w.connect([]openflow.DatapathID{1, 2, 3, 4, 5}, treeLinks)
	r.NetworkChanged(network.Event{Kind: network.LinkUp})
	if got := r.answer(edge3, dhcpv4.MessageTypeAck, answerTime); got != ip {
		t.Errorf("acknowledged %v, want %v", got, ip)
	}
	r.idle()
	r.at(ip, mac1, edge3, mac1)
	if failed := r.api.records(handoversInput{Result: ResultFailed}); len(failed) > 0 {
		t.Errorf("failed: %+v", failed)
	}
}

// A postponed request is outdated if its device has been granted another one since, elsewhere.
func TestRequestOvertakenWhileItWaited(t *testing.T) {
	w := newWorld(slices.Delete(slices.Clone(treeLinks), 4, 6)) // all but the link to edge4
	r := start(t, w, newStore(t), nil)
	ip := r.attach(edge3, mac1)
	r.send(edge4, mac2, request(mac2, ip))
	if got := r.answer(edge4, dhcpv4.MessageTypeAck, 50*time.Millisecond); got.IsValid() {
		t.Error("acknowledged without a way")
	}
	if got := r.move(edge5, mac1, ip); got != ip {
		t.Fatalf("moved, and got %v", got)
	}
	w.connect([]openflow.DatapathID{1, 2, 3, 4, 5}, treeLinks)
	r.NetworkChanged(network.Event{Kind: network.LinkUp})
	if got := r.answer(edge4, dhcpv4.MessageTypeAck, 200*time.Millisecond); got.IsValid() {
		t.Error("acknowledged where the device no longer is")
	}
	r.idle()
	r.at(ip, mac1, edge5, mac1)
}

// While the service waits after a start for a switch that does not come back, requests at other
// switches are answered.
func TestRequestBesideASwitchThatDoesNotComeBack(t *testing.T) {
	st := newStore(t)
	r := start(t, newWorld(treeLinks), st, nil)
	r.attach(edge3, mac1)
	r.idle()
	r.stop()
	w := newWorld(nil)
	there := []openflow.DatapathID{1, 2, 4, 5}
	w.connect(there, nil)
	kept := make(chan struct{})
	granted := func(r *rig) bool { return len(r.api.records(handoversInput{Device: "phone"})) > 0 }
	again := start(t, w, st, func(s *Settings) { s.Settle = time.Hour }, func(s *Service) {
		s.start(func(context.Context) {
			defer close(kept)
			r := &rig{Service: s, t: t, w: w}
			r.eventually("the service to take requests", func() bool { return s.view.Load() != nil })
			r.send(edge4, mac3, request(mac3, netip.MustParseAddr("10.8.3.3")))
			r.eventually("a request to be kept", func() bool {
				s.packets.awaitingPath.mu.Lock()
				defer s.packets.awaitingPath.mu.Unlock()
				return len(s.packets.awaitingPath.messages) > 0
			})
			w.connect(there, slices.Delete(slices.Clone(treeLinks), 2, 4))
			r.eventually("the request to be granted, though a switch is missing", func() bool { return granted(r) })
			w.connect([]openflow.DatapathID{1, 2, 3, 4, 5}, treeLinks) // lets the service become ready
		})
	})
	<-kept
	again.idle()
	if rec := again.api.records(handoversInput{Device: "phone"})[0]; rec.Result != ResultDone {
		t.Errorf("%+v", rec)
	}
}

func TestUnknownDevices(t *testing.T) {
	r := newRig(t, nil)
	if v := r.send(edge3, mac("06:00:00:00:00:77"), discover(mac("06:00:00:00:00:77"))); v != network.Continue {
		t.Error("DHCP of a device that nobody knows is not left to others")
	}
	r2 := newRig(t, func(s *Settings) {
		alter(s.Pools, "campus", func(p *registry.Pool) { p.Learn, p.Class = true, "default" })
	})
	m := mac("06:00:00:00:00:77")
	ip := r2.attach(edge3, m)
	r2.idle()
	r2.at(ip, m, edge3, m)
	if l, ok := r2.registry.Lease("mac-060000000077"); !ok || l.IP != ip {
		t.Errorf("its lease is %+v, %v; it got %v", l, ok, ip)
	}
}

// The rules of a device are removed when its lease ends.
func TestExpiry(t *testing.T) {
	r := newRig(t, func(s *Settings) {
		alter(s.Pools, "campus", func(p *registry.Pool) { p.LeaseTime = 5 * time.Second })
	})
	r.attach(edge3, mac1)
	r.idle()
	r.expiredNow("car")
	r.eventually("the rules to go", func() bool { return len(r.w.kept()) == 0 })
}

// expiredNow ends a device's lease.
func (r *rig) expiredNow(id string) {
	r.t.Helper()
	l, _ := r.registry.Lease(id)
	ended, err := r.registry.Lessor.Expire(r.t.Context(), l.Expires.Add(time.Second))
	if err != nil || len(ended) != 1 {
		r.t.Fatalf("%v, %v", ended, err)
	}
	r.expired(ended[0])
}
