package mobilityfirst

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// asks sends a request with an ID, which may be that of an earlier one, and returns the places that
// are asked.
func (w *world) asks(x message, id uint64, to frame.GUID) (places []place) {
	w.t.Helper()
	x.request, x.received = &frame.PathRequest{ID: id, Destination: to, Hello: x.hello}, time.Now()
	w.heard(x)
	for _, s := range w.sent() {
		if _, is := s.frame(w.t).(*frame.PathRequest); is {
			places = append(places, place{s.to, [6]byte(s.bytes)})
		}
	}
	return places
}

// Requests for a name with two places go to the nearer one, and are spread over both. Renewing a
// path keeps the place, even after a request to both; a request that is repeated without an answer
// goes to both.
func TestChoose(t *testing.T) {
	in(t, Options{}, func(w *world) {
		f, near, far := numbered(100), host(2, 2), host(3, 3)
		both := func() { w.say(f, near); w.say(f, far); w.sent() }
		both()
		a, at := numbered(1), host(1, 1)
		hello := w.hello(a, at)
		led := func(what string, id uint64, hello message, want ...place) {
			t.Helper()
			to := w.asks(hello, id, f.name)
			if len(to) != len(want) || len(want) == 1 && to[0] != want[0] {
				t.Errorf("who %s is led to %v, want %v", what, to, want)
			}
		}
		led("asks first", 1, hello, near)
		got := map[place]int{near: 1}
		for i := range 9 {
			to := w.asks(w.hello(numbered(2+i), host(1, byte(20+i))), 1, f.name)
			if len(to) != 1 {
				t.Fatalf("one is led to %v", to)
			}
			got[to[0]]++
		}
		if got[near] < 5 || got[near] > 6 || got[near]+got[far] != 10 {
			t.Errorf("ten are led to %v", got)
		}
		later := func() {
			for range 3 {
				w.pass(DefaultLease / 4)
				both()
				w.say(a, at)
			}
			hello = w.hello(a, at)
			w.heard(hello)
			w.sent()
		}
		later()
		led("renews its path", 2, hello, near)
		led("asks for the same again", 2, hello, near, far)
		later()
		led("renews it later", 3, hello, near)
		led("looks for another way", 4, w.hello(a, at), near, far)
	})
}

// With multihoming each interface of both hosts has a path, whichever host has more interfaces.
func TestMultihoming(t *testing.T) {
	for name, c := range map[string]struct{ asking, asked, want int }{
		"one to two": {1, 2, 2}, "two to one": {2, 1, 2}, "two to two": {2, 2, 2}, "two to three": {2, 3, 3}, "three to two": {3, 2, 3},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, Options{}, func(w *world) {
				a, b := numbered(1), numbered(2)
				var own []place
				said := func(o owner, at place) message { // hellos of one host have one number
					return message{place: at, hello: record.SignHello(o.key, w.number, at.MAC, 0), received: time.Now()}
				}
				for i := range c.asked {
					w.heard(said(b, host(2, byte(10+i))))
				}
				for i := range c.asking {
					own = append(own, host(1, byte(20+i)))
					w.heard(said(a, own[i]))
				}
				w.sent()
				ways, ends := 0, map[place]bool{}
				for _, at := range own {
					x := said(a, at)
					x.request = &frame.PathRequest{ID: 1, Destination: b.name, Service: frame.Multihoming, Hello: x.hello}
					w.heard(x)
					for _, s := range w.sent() {
						to := place{s.to, [6]byte(s.bytes)}
						q, is := s.frame(t).(*frame.PathRequest)
						if !is || q.Service != frame.Multihoming {
							t.Fatalf("sent %+v", s)
						}
						w.leads(q.Forth, q.Back, at, to)
						ends[at], ends[to] = true, true
						ways++
					}
				}
				if ways != c.want || len(ends) != c.asking+c.asked {
					t.Errorf("%d ways between %d interfaces, want %d between %d", ways, len(ends), c.want, c.asking+c.asked)
				}
			})
		})
	}
}

// If a name has more places than are considered, the existing path is kept, by a repeated request
// and by one for several paths, which selects the same places each time.
func TestManyPlacesKeepWays(t *testing.T) {
	in(t, Options{}, func(w *world) {
		f, at := numbered(100), host(1, 1)
		for i := range maxPlacesPerName {
			w.say(f, host(2, byte(10+i)))
		}
		w.sent()
		x := w.hello(numbered(1), at)
		first := w.asks(x, 1, f.name)
		for range 10 {
			if to := w.asks(x, 1, f.name); len(to) != maxRetryPlaces || !slices.Contains(to, first[0]) {
				t.Errorf("who asks again is led to %v, without %v", to, first)
			}
		}
		several := func(id uint64) map[place]bool {
			led := map[place]bool{}
			x.request = &frame.PathRequest{ID: id, Destination: f.name, Service: frame.Multihoming, Hello: x.hello}
			w.heard(x)
			for _, s := range w.sent() {
				led[place{s.to, openflow.MAC(s.bytes)}] = true
			}
			return led
		}
		ways := several(2)
		if len(ways) != maxCostedPlaces || !ways[first[0]] {
			t.Errorf("%d ways, by %v %v", len(ways), first, ways[first[0]])
		}
		if later := several(3); !maps.Equal(later, ways) {
			t.Errorf("later the ways are %v, first %v", later, ways)
		}
	})
}

// counting counts the route computations.
type counting struct {
	kit.Network
	looked int
}

func (c *counting) Topology() *network.Topology {
	c.looked++
	return c.Network.Topology()
}

// A repeated request computes no routes: all places that do not drain are asked, whatever their
// cost.
func TestSpareLooksForNoWay(t *testing.T) {
	in(t, Options{}, func(w *world) {
		f, c := numbered(100).name, &counting{Network: w.net}
		s := &Service{Options: w.Options, nodes: w.nodes}
		s.Network = c
		if to := s.withoutDraining([]endpoint{{f, host(2, 2)}, {f, host(3, 3)}}, -1); len(to) != 2 || c.looked != 0 {
			t.Errorf("led to %v, by %d looks", to, c.looked)
		}
	})
}

// If there is no path to the selected place, all places are asked.
func TestChooseWithoutRoom(t *testing.T) {
	in(t, Options{MaxPaths: 1}, func(w *world) {
		f, a, b := numbered(100), numbered(1), numbered(2)
		w.say(f, host(2, 2))
		w.say(f, host(3, 3))
		w.sent()
		if to := w.asks(w.hello(a, host(1, 1)), 1, f.name); len(to) != 1 {
			t.Errorf("the first is led to %v", to)
		}
		if to := w.asks(w.hello(b, host(4, 9)), 1, f.name); len(to) != 2 {
			t.Errorf("who can have no path is led to %v", to)
		}
	})
}

// Hosts with the same name are both accepted although their clocks differ a little; a much older
// hello is not.
func TestClocks(t *testing.T) {
	in(t, Options{}, func(w *world) {
		f, now := numbered(100), w.number
		say := func(at place, behind time.Duration) {
			w.heard(message{place: at, hello: record.SignHello(f.key, now-uint64(behind), at.MAC, 0), received: time.Now()})
		}
		say(host(2, 2), 0)
		say(host(3, 3), 10*time.Second)
		say(host(4, 4), 20*time.Second)
		if places := w.names.find(f.name); len(places) != 2 {
			t.Errorf("the name is at %v", places)
		}
		for range 3 { // and stay so
			w.pass(15 * time.Second)
			now += uint64(15 * time.Second)
			say(host(2, 2), 0)
			say(host(3, 3), 10*time.Second)
		}
		if places := w.names.find(f.name); len(places) != 2 {
			t.Errorf("later the name is at %v", places)
		}
	})
}

// A multicast request goes to each host of a name, by a path of its own. Hosts beyond the maximum
// number of places are refused, and the existing ones stay. Nothing is left when the leases have
// ended.
func TestMulticast(t *testing.T) {
	in(t, Options{}, func(w *world) {
		f, a, at := numbered(100), numbered(1), host(1, 1)
		for i := range maxPlacesPerName + 10 {
			w.say(f, host(openflow.DatapathID(1+i%4), byte(10+i)))
		}
		w.sent()
		if n := len(w.names.find(f.name)); n != maxPlacesPerName {
			t.Fatalf("the name is at %d places", n)
		}
		ask := func(service frame.Service, id uint64) (led int) {
			x := w.hello(a, at)
			x.request = &frame.PathRequest{ID: id, Destination: f.name, Service: service, Hello: x.hello}
			w.heard(x)
			for _, s := range w.sent() {
				if q, is := s.frame(t).(*frame.PathRequest); is {
					w.leads(q.Forth, q.Back, at, place{s.to, openflow.MAC(s.bytes)})
					led++
				}
			}
			return led
		}
		if led := ask(frame.Multicast, 1); led != maxPlacesPerName {
			t.Errorf("it is led to %d", led)
		}
		if led := ask(frame.Multicast, 2); led != maxPlacesPerName || w.paths.count() != maxPlacesPerName {
			t.Errorf("later it is led to %d by %d paths", led, w.paths.count())
		}
		if led := ask(frame.Anycast, 3); led != maxRetryPlaces {
			t.Errorf("who looks for another way is led to %d", led)
		}
		w.pass(DefaultLease + leaseGrace + 2*sweepInterval)
		if w.rules() != 0 || w.paths.count() != 0 {
			t.Errorf("%d rules are left", w.rules())
		}
	})
}

// If there is no path to the selected one of many places, a few others are asked, up to a port's
// limit.
func TestOthersAreBounded(t *testing.T) {
	in(t, Options{}, func(w *world) {
		f := numbered(100)
		for i := range maxPlacesPerName {
			w.say(f, host(2, byte(10+i)))
		}
		w.sent()
		w.ledger.SetOnApply(func(context.Context, string) error { return context.DeadlineExceeded })
		x := w.hello(numbered(1), host(1, 1))
		if led := len(w.asks(x, 0, f.name)); led != maxRetryPlaces {
			t.Errorf("%d are asked, want %d", led, maxRetryPlaces)
		}
		led := 0
		for i := range framesPerPort {
			led += len(w.asks(x, uint64(1+i), f.name))
		}
		if most := forwardsPerPort + framesPerPort; led > most {
			t.Errorf("%d are asked, want at most %d", led, most)
		}
	})
}

// A requester of many hosts cannot exceed a port's limit.
func TestMulticastIsBounded(t *testing.T) {
	in(t, Options{}, func(w *world) {
		f, a, at := numbered(100), numbered(1), host(1, 1)
		for i := range maxPlacesPerName {
			w.say(f, host(2, byte(10+i)))
		}
		w.sent()
		x, led := w.hello(a, at), 0
		for i := range framesPerPort / 2 {
			x.request = &frame.PathRequest{ID: uint64(i), Destination: f.name, Service: frame.Multicast, Hello: x.hello}
			w.heard(x)
			led += len(w.sent())
		}
		if most := forwardsPerPort + framesPerPort; led > most {
			t.Errorf("%d frames, want at most %d", led, most)
		}
	})
}
