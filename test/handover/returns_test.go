package handover

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover"
)

// TestReturnsLoseNothing moves devices back and forth between two places, and sends a burst as
// soon as they have their lease. The switches have cached decisions about the packets that arrived
// there after the devices had left, and must not use them.
func TestReturnsLoseNothing(t *testing.T) {
	t.Parallel()
	w, radios := crowd(t, lab.MobilityOptions{Cross: true})
	for n, policy := range []string{"saving", "seamless"} {
		w.put("classes/"+policy, handover.ClassSpec{Policy: policy, Trigger: "open", Overlap: "50ms"})
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

// keepCached is how long a switch of TestNothingCachedOfLeft keeps a decision that no packet has
// used: longer than any wait of these tests.
const keepCached = 10 * time.Minute

// TestNothingCachedOfLeft checks that the switches at a place that a device has left delete their
// cached decisions about its packets together with its rules, and do not keep them, changed, until
// they time out. A device that comes back then meets no outdated decision, which only a controller
// could correct.
func TestNothingCachedOfLeft(t *testing.T) {
	t.Parallel()
	w, radios := crowd(t, lab.MobilityOptions{})
	w.put("classes/moving", handover.ClassSpec{Policy: "seamless", Trigger: "open", Overlap: "50ms"})
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

// edgeOf returns the switch that a radio is at.
func (w *world) edgeOf(r *radio) string {
	name, _ := w.lab.Link(r.link).Attachment()
	return name
}

// cachedFrom returns a switch's cached decisions about IPv4 packets from an address.
func (w *world) cachedFrom(name string, from netip.Addr) []string {
	w.t.Helper()
	found, err := w.lab.Switch(name).Cached(w.t.Context(), "ipv4(src="+from.String()+",")
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}

// burst sends n packets from a phone to the server, as fast as possible, and waits until all have
// arrived.
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
	if !w.poll(waitLimit, func() bool { return came.Load() >= int64(n) }) {
		w.t.Errorf("%d of %d packets came from where the device is, %s", came.Load(), n, r.link)
	}
}
