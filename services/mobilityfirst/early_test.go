package mobilityfirst

import (
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// said passes a host's frame to the service, as the switches do.
func (w *world) said(x message) network.Verdict {
	f := frame.Frame(&x.hello)
	if x.request != nil {
		f = x.request
	}
	return w.receive(message{place: x.place, received: x.received, send: w.net}, f.AppendTo(nil))
}

// stands makes the network know a host at a place, and notifies the service.
func (w *world) stands(at place) {
	h := network.Host{MAC: at.MAC, At: at.At, IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, at.MAC[5]})}}
	w.net.SetHost(h)
	w.NetworkChanged(network.Event{Kind: network.HostMoved, Host: h, Port: h.At})
	w.pass(0)
}

// A hello from a place where the network does not know the host yet is processed once the network
// knows, and not lost.
func TestSaidEarly(t *testing.T) {
	in(t, Options{}, func(w *world) {
		b, old := numbered(2), host(2, 2)
		now := place{host(3, 3).At, old.MAC}
		w.stands(old)
		if v := w.said(w.hello(b, now)); v != network.Continue {
			t.Errorf("a hello of a host that is elsewhere: %v", v)
		}
		w.pass(300 * time.Millisecond)
		h := network.Host{MAC: now.MAC, VLAN: 5, At: now.At}
		w.NetworkChanged(network.Event{Kind: network.HostAdded, Host: h, Port: h.At}) // somebody there uses it in a VLAN
		w.pass(0)
		if places := w.names.find(b.name); len(places) != 0 {
			t.Errorf("before it is believed the name is at %v", places)
		}
		w.said(w.hello(b, now))
		w.stands(now)
		if places := w.names.find(b.name); len(places) != 1 || places[0] != now {
			t.Errorf("the name is at %v", places)
		}
		c := numbered(3)
		w.said(w.hello(c, old))
		w.pass(2 * earlyLifetime)
		w.stands(old)
		if places := w.names.find(c.name); len(places) != 0 {
			t.Errorf("by a hello of long ago the name is at %v", places)
		}
	})
}

// Early messages of strangers are limited by port, by switch and in total, and expired ones leave
// no state.
func TestSaidEarlyByMany(t *testing.T) {
	in(t, Options{}, func(w *world) {
		// Signatures are not checked before the host is known at the place.
		say := func(at network.PortRef, i int) {
			x := message{place: place{at, openflow.MAC{2, byte(at.Switch), 0, 0, byte(i >> 8), byte(i)}}, received: time.Now(), send: w.net}
			hello := frame.Hello{Number: 1, MAC: x.MAC}
			be.PutUint32(hello.Key[:], uint32(i))
			w.receive(x, hello.AppendTo(nil))
		}
		most := maxEarly / 4
		for d := range openflow.DatapathID(4) {
			for port := range uint32(most/maxEarlyPerPort + 1) {
				for i := range maxEarlyPerPort + 10 {
					say(network.PortRef{Switch: 1 + d, Port: 100 + port}, i)
				}
			}
		}
		w.early.mu.Lock()
		here, there := w.early.shares.Has(network.PortRef{Switch: 1, Port: 100})
		if here != maxEarlyPerPort || there != most || w.early.shares.All() != maxEarly {
			t.Errorf("%d of one port, %d of one switch, %d in all, want %d, %d and %d", here, there, w.early.shares.All(), maxEarlyPerPort, most, maxEarly)
		}
		w.early.mu.Unlock()
		w.pass(2 * earlyLifetime)
		w.early.mu.Lock()
		defer w.early.mu.Unlock()
		if n := w.early.shares.All(); n+len(w.early.byPlace) != 0 {
			t.Errorf("later there are %d of %d places", n, len(w.early.byPlace))
		}
	})
}
