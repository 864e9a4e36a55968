package handover

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/handover/plugin"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/openflow"
)

// TestReturnsLoseNothing has devices go to and fro between two places, and send a
// burst as soon as they have their lease: the switches remember what they did with their
// packets there when they had left, and must not go by that.
func TestReturnsLoseNothing(t *testing.T) {
	t.Parallel()
	w, radios := crowd(t, lab.MobilityOptions{Cross: true})
	for n, policy := range []string{"saving", "seamless"} {
		w.put("classes/"+policy, plugin.ClassSpec{Policy: policy, Trigger: "open", Overlap: "50ms"})
		p := newPhone(n+1, 4)
		w.register(policy, p)
		if err := p.join(t.Context(), radios[0], p.macs[0]); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			here := i % 2
			if i > 0 {
				if err := p.move(t.Context(), radios[here], p.macs[here]); err != nil {
					t.Fatalf("%s, move %d: %v", policy, i, err)
				}
			}
			w.burst(p, radios[here], p.macs[here], 100)
			w.eventually("the device is served at one place", func() bool { return !w.anyBicast([]*phone{p}) })
		}
	}
	w.compareRules()
}

// keepCached is for how long a switch of TestNothingCachedOfLeft keeps a decision that no
// packet has used: longer than any wait of these tests.
const keepCached = 10 * time.Minute

// TestNothingCachedOfLeft has a device leave a place: the switches there forget what
// they have decided about its packets when its rules are deleted, and do not keep it,
// changed, until it is too old. Whoever comes back meets no old decision, which would
// take a controller to correct.
func TestNothingCachedOfLeft(t *testing.T) {
	t.Parallel()
	w, radios := crowd(t, lab.MobilityOptions{})
	w.put("classes/moving", plugin.ClassSpec{Policy: "seamless", Trigger: "open", Overlap: "50ms"})
	p := newPhone(1, 4)
	w.register("moving", p)
	left := w.edgeOf(radios[0])
	if _, err := w.lab.Switch(left).Vsctl(t.Context(), "set", "Open_vSwitch", ".", fmt.Sprintf("other_config:max-idle=%d", keepCached.Milliseconds())); err != nil {
		t.Fatal(err)
	}
	if err := p.join(t.Context(), radios[0], p.macs[0]); err != nil {
		t.Fatal(err)
	}
	w.burst(p, radios[0], p.macs[0], 100)
	if len(w.cachedFrom(left, p.ip)) == 0 {
		t.Fatalf("%s keeps no decision about what the device sends", left)
	}
	if err := p.move(t.Context(), radios[1], p.macs[1]); err != nil {
		t.Fatal(err)
	}
	w.eventually("the device is served at one place", func() bool { return !w.anyBicast([]*phone{p}) })
	w.eventually("nothing of the device is cached in "+left, func() bool { return len(w.cachedFrom(left, p.ip)) == 0 })
}

// edgeOf names the switch that a radio is at.
func (w *world) edgeOf(r *radio) string {
	name, _ := w.lab.Link(r.link).Attachment()
	return name
}

// cachedFrom are the decisions about IPv4 packets from an address that a switch keeps.
func (w *world) cachedFrom(name string, from netip.Addr) []string {
	w.t.Helper()
	found, err := w.lab.Switch(name).Cached(w.t.Context(), "ipv4(src="+from.String()+",")
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}

// burst has a phone send n packets to the server, as fast as it can, and waits
// until all have come.
func (w *world) burst(p *phone, r *radio, mac openflow.MAC, n int) {
	w.t.Helper()
	if w.gateway == nil {
		w.gateway = w.radio(w.domain.Gateway, 0)
	}
	first := w.probes + 1
	w.probes += uint32(n)
	var came atomic.Int64
	stop := w.gateway.watch(func(f frame) {
		if f.from.Addr() == p.ip && f.to.Port() == probePort && len(f.payload) == 4 && binary.BigEndian.Uint32(f.payload) >= first {
			came.Add(1)
		}
	})
	defer stop()
	to := netip.AddrPortFrom(w.domain.ServerAddr, probePort)
	for i := range n {
		b := udpFrame(hostMAC(w.lab.Host(w.domain.Gateway), 0), mac, netip.AddrPortFrom(p.ip, probePort), to, binary.BigEndian.AppendUint32(nil, first+uint32(i)))
		if err := r.send(b); err != nil {
			w.t.Fatal(err)
		}
	}
	if !w.poll(patience, func() bool { return came.Load() >= int64(n) }) {
		w.t.Errorf("%d of %d packets came from where the device is, %s", came.Load(), n, r.link)
	}
}
