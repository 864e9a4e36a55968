package mobilityfirst

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// A request goes only to the name's host, with the labels of an existing path; a repeated one has
// the same labels; and nothing is left after the lease.
func TestPath(t *testing.T) {
	in(t, Options{}, func(w *world) {
		a, b, at, bt := numbered(1), numbered(2), host(1, 1), host(2, 2)
		w.say(b, bt)
		if v := w.ask(a, at, b.name); v != network.Stop {
			t.Error("the request goes to everybody")
		}
		q := w.request(bt)
		w.leads(q.Forth, q.Back, at, bt)
		if q.LeaseTime() != DefaultLease || w.rules() != 4 {
			t.Errorf("lease %v, %d rules, want %v, 4", q.LeaseTime(), w.rules(), DefaultLease)
		}
		for range 4 {
			w.pass(DefaultLease / 4)
			w.say(a, at)
			w.say(b, bt)
		}
		w.ask(a, at, b.name)
		if again := w.request(bt); again.Forth != q.Forth || again.Back != q.Back {
			t.Errorf("labels %d and %d, before %d and %d", again.Forth, again.Back, q.Forth, q.Back)
		}
		w.ask(b, bt, a.name)
		if other := w.request(at); other.Forth != q.Back || other.Back != q.Forth {
			t.Errorf("labels %d and %d in the other direction of %d and %d", other.Forth, other.Back, q.Forth, q.Back)
		}
		w.pass(DefaultLease + leaseGrace - time.Second)
		w.leads(q.Forth, q.Back, at, bt)
		w.pass(2 * sweepInterval)
		if n := w.rules(); n != 0 || w.paths.count() != 0 || len(w.paths.labels.taken) != 0 || w.paths.flows.Len() != 0 || len(w.paths.byName) != 0 {
			t.Errorf("%d rules and %d paths are left", n, w.paths.count())
		}
	})
}

// A host that has asked in vain for a name, or sends to it, is notified when the name says hello
// from a new place.
func TestFound(t *testing.T) {
	in(t, Options{}, func(w *world) {
		a, b, at := numbered(1), numbered(2), host(1, 1)
		if v := w.ask(a, at, b.name); v != network.Continue {
			t.Error("a request for a name that is not known ends")
		}
		for _, bt := range []place{host(2, 2), host(3, 2), host(4, 7)} {
			w.say(b, bt)
			all := w.sent()
			if len(all) != 1 || all[0].to != at.At || openflow.MAC(all[0].frame(t).(*frame.Hello).MAC) != bt.MAC {
				t.Fatalf("at %v sent %+v", bt, all)
			}
			w.say(b, bt)
			w.ask(a, at, b.name)
			for _, s := range w.sent() {
				q := s.frame(t).(*frame.PathRequest)
				if s.to == bt.At {
					w.leads(q.Forth, q.Back, at, bt)
				}
			}
		}
	})
}

// A failed link ends no path for which there is another route, and labels stay.
func TestLinkCut(t *testing.T) {
	in(t, Options{}, func(w *world) {
		a, b, at, bt := numbered(1), numbered(2), host(1, 1), host(2, 2)
		w.say(b, bt)
		w.ask(a, at, b.name)
		q := w.request(bt)
		w.net.SetTopology(ring(1))
		w.NetworkChanged(network.Event{Kind: network.LinkDown})
		w.pass(2 * rerouteDelay)
		w.leads(q.Forth, q.Back, at, bt)
		if w.rules() != 8 {
			t.Errorf("%d rules, want 8", w.rules())
		}
		w.net.SetTopology(ring(1, 3))
		w.NetworkChanged(network.Event{Kind: network.LinkDown})
		w.pass(2 * rerouteDelay)
		if w.rules() != 0 || w.paths.count() != 0 {
			t.Errorf("%d rules of a path without a route", w.rules())
		}
	})
}

// A switch that has left the controller may still forward frames: its paths stay, unless one of its
// ports is reported down or there is another route.
func TestSwitchLeft(t *testing.T) {
	in(t, Options{}, func(w *world) {
		a, b, at, bt := numbered(1), numbered(2), host(1, 1), host(3, 2)
		w.say(b, bt)
		w.ask(a, at, b.name)
		w.request(bt)
		before := w.paths.routes()[0].hops
		through := before[1].Switch
		left := func(cut ...openflow.DatapathID) {
			top := ring(cut...)
			keep := func(d openflow.DatapathID) bool { return d != through }
			var links []network.Link
			for _, l := range top.Links {
				if keep(l.From.Switch) && keep(l.To.Switch) {
					links = append(links, l)
				}
			}
			w.net.SetTopology(topology.New(1, slices.DeleteFunc(slices.Clone(top.Switches), func(d openflow.DatapathID) bool { return !keep(d) }), links))
			w.NetworkChanged(network.Event{Kind: network.SwitchDown, Switch: through})
			w.pass(2 * rerouteDelay)
		}
		left(1, 2, 3, 4)
		if n := w.rules(); n != 6 {
			t.Errorf("%d rules when a switch has left, want 6", n)
		}
		left()
		if after := w.paths.routes()[0].hops; len(after) != 3 || after[1].Switch == through {
			t.Errorf("the path goes by %v when there is another route", after)
		}
	})
}

// When a port goes down, its names are removed.
func TestPortDown(t *testing.T) {
	in(t, Options{}, func(w *world) {
		a, b, at, bt := numbered(1), numbered(2), host(1, 1), host(2, 2)
		w.say(b, bt)
		w.NetworkChanged(network.Event{Kind: network.PortDown, Port: bt.At})
		if v := w.ask(a, at, b.name); v != network.Continue {
			t.Error("a request for a name whose port is down goes there")
		}
		w.say(b, bt)
		w.pass(helloTimeout + 2*sweepInterval)
		if v := w.ask(a, at, b.name); v != network.Continue || len(w.names.byPort) != 1 {
			t.Errorf("a name that is silent is behind one of %d ports", len(w.names.byPort))
		}
	})
}

// A host that is unplugged and appears at a port which came up a moment ago, or at the same port
// again, is there as soon as it has said hello: the network need not have probed the port, nor seen
// the host's address there. Those who send to its names are told, and it can ask for paths itself. A
// stranger waits until the network knows it there, and nobody has its place without its key.
func TestUnplugged(t *testing.T) {
	for name, where := range map[string]place{"elsewhere": {host(3, 3).At, host(2, 2).MAC}, "the same port": host(2, 2)} {
		t.Run(name, func(t *testing.T) {
			in(t, Options{}, func(w *world) {
				a, b, at, bt := numbered(1), numbered(2), host(1, 1), host(2, 2)
				w.stands(at)
				w.stands(bt)
				w.said(w.hello(a, at))
				first := w.hello(b, bt)
				w.said(first)
				w.pass(0)
				w.ask(a, at, b.name)
				w.request(bt)
				w.NetworkChanged(network.Event{Kind: network.PortDown, Port: bt.At})
				w.pass(3 * time.Second)
				w.net.mu.Lock()
				w.net.settling = map[network.PortRef]bool{where.At: true}
				w.net.mu.Unlock()
				for _, mac := range []openflow.MAC{host(3, 4).MAC, {2, 0, 0, 0, 0, 2}} {
					x := w.hello(numbered(3), place{where.At, mac})
					if v := w.said(x); v != network.Continue && !w.isHostAt(x.place) {
						t.Errorf("a stranger with the address %v: %v", mac, v)
					}
				}
				forged := w.hello(b, where)
				forged.hello.Signature[3]++
				w.said(forged)
				replayed := first
				replayed.hello.Number--
				replayed.place = where
				w.said(replayed)
				w.pass(0)
				if all := w.sent(); len(all) != 0 || len(w.names.find(b.name)) != 0 {
					t.Fatalf("by hellos of others the name is at %v, and %d frames are sent", w.names.find(b.name), len(all))
				}
				x := w.hello(b, where)
				w.said(x)
				w.pass(0)
				if all := w.sent(); len(all) != 1 || all[0].to != at.At {
					t.Fatalf("sent %+v, want the hello to who sends to the name", all)
				}
				w.ask(a, at, b.name)
				q := w.request(where)
				w.leads(q.Forth, q.Back, at, where)
				x.request = &frame.PathRequest{ID: 77, Destination: a.name, Hello: x.hello}
				w.said(x)
				w.pass(0)
				w.request(at)
			})
		})
	}
}

// If there is no path, a request continues without labels.
func TestWithoutPath(t *testing.T) {
	refusal := errors.New("the table is full")
	for name, c := range map[string]struct {
		o    Options
		make func(w *world)
	}{
		"the switch refuses": {make: func(w *world) {
			w.ledger.SetOnApply(func(context.Context, string) error { return refusal })
		}},
		"there is no route": {make: func(w *world) { w.net.SetTopology(ring(1, 2)) }},
		"there are as many as may be": {o: Options{MaxPaths: 1}, make: func(w *world) {
			w.say(numbered(3), host(3, 3))
			w.ask(numbered(3), host(3, 3), numbered(2).name)
			w.sent()
		}},
		"one Ethernet address": {make: func(*world) {}},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, c.o, func(w *world) {
				a, b, at, bt := numbered(1), numbered(2), host(1, 1), host(2, 2)
				w.say(b, bt)
				c.make(w)
				if name == "one Ethernet address" {
					at.MAC = bt.MAC
					if w.ask(a, at, b.name); len(w.sent()) > 0 || w.rules() > 0 {
						t.Errorf("%d rules between two hosts with one address", w.rules())
					}
					return
				}
				before := w.rules()
				w.ask(a, at, b.name)
				if q := w.request(bt); q.Forth != 0 || q.Back != 0 || q.Lease != 0 {
					t.Errorf("labels %d and %d for %d ms without a path", q.Forth, q.Back, q.Lease)
				}
				if w.rules() != before {
					t.Errorf("%d rules, before %d", w.rules(), before)
				}
			})
		})
	}
}

// maxSetupsFrom is the number of paths that kit.Flows sets up at one time for one port.
const maxSetupsFrom = 64

// While one switch is slow, paths of others are set up, and requests of its hosts continue.
func TestSlowSwitch(t *testing.T) {
	in(t, Options{}, func(w *world) {
		b, c := numbered(2), numbered(3)
		w.say(b, host(2, 2))
		w.say(c, host(3, 3))
		slow := true
		w.ledger.SetOnApply(func(ctx context.Context, _ string) error {
			if !slow {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		for i := range maxSetupsFrom + 1 {
			w.ask(numbered(10+i), host(1, 1), b.name)
		}
		if q := w.request(host(2, 2)); q.Forth != 0 {
			t.Error("a path that was not waited for has a label")
		}
		slow = false
		w.ask(numbered(4), host(4, 4), c.name)
		q := w.request(host(3, 3))
		w.leads(q.Forth, q.Back, host(4, 4), host(3, 3))
		w.pass(setupTimeout + time.Second)
		if all := w.sent(); len(all) != maxSetupsFrom {
			t.Errorf("%d requests went on, want %d", len(all), maxSetupsFrom)
		}
		if w.paths.count() != 1 {
			t.Errorf("%d paths, want 1", w.paths.count())
		}
	})
}

// A hello is only accepted if it is signed by the name's owner, for the place where it is sent, and
// is not a replay.
func TestNotBelieved(t *testing.T) {
	b, bt, xt := numbered(2), host(2, 2), host(4, 9)
	for name, say := range map[string]func(w *world, first message) message{
		"forged": func(w *world, _ message) message {
			x := w.hello(b, xt)
			x.hello.Signature[3]++
			return x
		},
		"another's key": func(w *world, _ message) message {
			x := w.hello(numbered(9), xt)
			copy(x.hello.Key[:], b.key[32:])
			return x
		},
		"replayed": func(_ *world, first message) message { first.At = xt.At; return first },
		"replayed from another address": func(_ *world, first message) message {
			first.place = xt
			return first
		},
		"older": func(*world, message) message {
			return message{place: xt, hello: record.SignHello(b.key, 1, xt.MAC, 0), received: time.Now()}
		},
		"an answer": func(w *world, _ message) message {
			w.number++
			return message{place: xt, hello: record.SignHello(b.key, w.number, xt.MAC, 7), received: time.Now()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, Options{}, func(w *world) {
				first := w.hello(b, bt)
				w.heard(first)
				x := say(w, first)
				w.heard(x)
				x.request = &frame.PathRequest{ID: 1, Destination: b.name, Hello: x.hello}
				w.heard(x)
				if all := w.sent(); len(all) != 0 || w.rules() != 0 {
					t.Errorf("%d frames were sent, %d rules written", len(all), w.rules())
				}
				if places := w.names.find(b.name); len(places) != 1 || places[0] != bt {
					t.Errorf("the name is at %v", places)
				}
			})
		})
	}
}

// Rules from before a start stay until all leases have ended.
func TestRestart(t *testing.T) {
	in(t, Options{Lease: MinLease}, func(w *world) {
		w.pass(MaxLease + leaseGrace - time.Second)
		if w.ledger.AtReady() != nil {
			t.Error("rules from before are gone with leases that go on")
		}
		w.pass(2 * time.Second)
		if w.ledger.AtReady() == nil {
			t.Error("rules from before stay")
		}
	})
}
