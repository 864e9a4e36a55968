package mobilityfirst

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// A host with more names than allowed, whose requests are broadcast, takes no room from others.
func TestManyNames(t *testing.T) {
	in(t, Options{MaxPaths: 64}, func(w *world) {
		b, bt, xt := numbered(2), host(2, 2), host(4, 9)
		w.say(b, bt)
		for i := range 2 * maxPlacesPerPort {
			w.pass(time.Second / signaturesPerPort)
			w.ask(numbered(100+i), xt, b.name)
		}
		if n := len(w.names.byPort[xt.At]); n != maxPlacesPerPort {
			t.Errorf("%d names behind one port, want %d", n, maxPlacesPerPort)
		}
		if n := w.paths.count(); n != 8 {
			t.Errorf("%d paths from one port, want an eighth of %d", n, w.MaxPaths)
		}
		w.sent()
		w.say(b, bt)
		w.ask(numbered(1), host(1, 1), b.name)
		if q := w.request(bt); q.Forth == 0 {
			t.Error("there is no path for another")
		}
	})
}

// TestFloods checks that the cost of floods of a million messages, each about another name, request
// or address, is limited for each port and in total, and that other hosts are served meanwhile.
func TestFloods(t *testing.T) {
	many := func(w *world, make func(i int) message) {
		for i := range 1_000_000 {
			if x := make(i); w.limits.frames.Allow(x.At, x.received) {
				x.send = w.net
				w.process(x)
			}
			if i%512 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
	}
	b, xt := numbered(2), host(4, 9)
	key := [32]byte{1}
	signed := record.SignHello(numbered(9).key, 5, xt.MAC, 0) // once: signing is most of the work
	for name, flood := range map[string]func(w *world, i int) message{
		"hellos of new names, unsigned": func(_ *world, i int) message {
			h := frame.Hello{MAC: xt.MAC, Number: uint64(i)}
			be.PutUint32(h.Key[:], uint32(i))
			return message{place: xt, hello: h, received: time.Now()}
		},
		"requests for new names": func(_ *world, i int) message {
			q := frame.PathRequest{ID: uint64(i), Hello: frame.Hello{MAC: xt.MAC, Key: key}}
			be.PutUint32(q.Destination[:], uint32(i))
			return message{place: xt, hello: q.Hello, request: &q, received: time.Now()}
		},
		"from new addresses": func(_ *world, i int) message {
			at := xt
			be.PutUint32(at.MAC[2:], uint32(i))
			return message{place: at, hello: frame.Hello{MAC: at.MAC, Key: key}, received: time.Now()}
		},
		"requests for one that is there": func(_ *world, i int) message {
			q := frame.PathRequest{ID: uint64(i), Destination: b.name, Hello: signed}
			return message{place: xt, hello: q.Hello, request: &q, received: time.Now()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, Options{}, func(w *world) {
				w.say(b, host(2, 2))
				many(w, func(i int) message { return flood(w, i) })
				if n := len(w.sent()); n > framesPerPort {
					t.Errorf("%d frames were sent at one time, more than %d", n, framesPerPort)
				}
				if n := len(w.names.byName); n > 2 {
					t.Errorf("%d names are known", n)
				}
				if n := len(w.names.subscribers); n > maxSubscriptionsPerPort {
					t.Errorf("%d names are asked for", n)
				}
				w.ask(numbered(1), host(1, 1), b.name)
				if q := w.request(host(2, 2)); q.Forth == 0 {
					t.Error("another got no path")
				}
			})
		})
	}
}

// A move of a name with many subscribers causes a limited number of notifications.
func TestManyFollowers(t *testing.T) {
	in(t, Options{}, func(w *world) {
		b := numbered(2)
		for i := range 2 * maxSubscribersPerName {
			w.pass(time.Second / signaturesPerPort)
			w.ask(numbered(100+i), host(openflow.DatapathID(1+i%4), byte(50+i)), b.name)
		}
		if n := len(w.names.subscribers[b.name]); n != maxSubscribersPerName {
			t.Errorf("%d follow a name, want %d", n, maxSubscribersPerName)
		}
		w.sent()
		w.say(b, host(2, 2))
		if n := len(w.sent()); n != maxSubscribersPerName {
			t.Errorf("%d are told, want %d", n, maxSubscribersPerName)
		}
		w.pass(subscriptionLifetime + 2*sweepInterval)
		if n := len(w.names.subscribers); n != 0 {
			t.Errorf("%d names are followed after their time", n)
		}
	})
}

// Hosts behind one port that ask for an absent name under many addresses do not keep a host behind
// another port from being notified when the name appears.
func TestSubscribersOfOnePort(t *testing.T) {
	in(t, Options{}, func(w *world) {
		b, other := numbered(2), host(3, 3)
		for i := range 2 * maxSubscribersPerName {
			w.pass(time.Second / signaturesPerPort)
			at := host(1, 1)
			at.MAC[4] = byte(i)
			w.ask(numbered(100+i), at, b.name)
		}
		w.ask(numbered(3), other, b.name)
		w.sent()
		w.say(b, host(2, 2))
		told := map[network.PortRef]int{}
		for _, x := range w.sent() {
			told[x.to]++
		}
		if told[other.At] != 1 || told[host(1, 1).At] != maxSubscribersPerPort {
			t.Errorf("notified by port: %v, want one host at %v and %d at %v", told, other.At, maxSubscribersPerPort, host(1, 1).At)
		}
	})
}

// Hosts behind one port that ask for very many absent names leave others room to do so.
func TestSubscriptionsOfOnePort(t *testing.T) {
	n, busy, other := newNames(), host(1, 1), host(1, 2)
	for i := range 2 * maxSubscriptionsPerPort {
		var name frame.GUID
		be.PutUint32(name[:], uint32(i+1))
		n.subscribe(name, busy, time.Unix(0, 0))
	}
	if has, _ := n.subscriptions.Has(busy.At); has != maxSubscriptionsPerPort {
		t.Errorf("%d subscriptions of one port, want %d", has, maxSubscriptionsPerPort)
	}
	n.subscribe(numbered(2).name, other, time.Unix(0, 0))
	if all := n.takeSubscribers(numbered(2).name); len(all) != 1 || all[0] != other {
		t.Errorf("subscribers are %v, want %v", all, other)
	}
	n.expire(time.Unix(0, 0).Add(subscriptionLifetime + 1))
	if len(n.subscribers) != 0 || n.subscriptions.All() != 0 {
		t.Errorf("%d names with %d subscriptions are left", len(n.subscribers), n.subscriptions.All())
	}
}

// A host that says hello for many new names does not hide the events about hosts behind other ports.
func TestEventsOfOnePort(t *testing.T) {
	bus := event.NewBus(1, 4096)
	in(t, Options{Bus: bus}, func(w *world) {
		sub := bus.Subscribe(0)
		busy, other := host(1, 1), host(1, 2)
		for i := range maxPlacesPerPort {
			w.say(numbered(100+i), busy)
		}
		w.say(numbered(1), other)
		bus.Close()
		for told := 0; ; told++ {
			e, err := sub.Next(t.Context())
			if err != nil {
				t.Errorf("after %d events about one port there is none about the other: %v", told, err)
				return
			}
			var found NameEvent
			if err := json.Unmarshal(e.Attrs, &found); err != nil {
				t.Fatal(err)
			}
			if found.Port == other.At.String() {
				if told > eventLimits.Port.Burst {
					t.Errorf("%d events about one port, want %d at most", told, eventLimits.Port.Burst)
				}
				return
			}
		}
	})
}

// A host whose requests go to several places, at the maximum rate, does not prevent notifications
// to others at its port.
func TestLeadsAreNotTold(t *testing.T) {
	in(t, Options{}, func(w *world) {
		b, moves, at, follows := numbered(2), numbered(3), host(1, 1), host(4, 4)
		for i := range byte(maxRetryPlaces) {
			w.say(b, host(2, 10+i))
		}
		w.ask(numbered(4), follows, moves.name)
		x := w.hello(numbered(1), at)
		for range framesPerPort {
			w.asks(x, 1, b.name)
		}
		w.say(moves, place{at.At, host(1, 2).MAC})
		if all := w.sent(); len(all) != 1 || all[0].to != follows.At {
			t.Errorf("sent %d frames, want one to who follows the name", len(all))
		}
	})
}

// If a name has no room for another host, that host's requests for other names still succeed.
func TestAsksWithoutRoom(t *testing.T) {
	in(t, Options{}, func(w *world) {
		f, b, at, bt := numbered(100), numbered(2), host(1, 1), host(4, 4)
		for i := range maxPlacesPerName {
			w.say(f, host(2, byte(10+i)))
		}
		w.say(b, bt)
		w.sent()
		w.ask(f, at, b.name)
		q := w.request(bt)
		w.leads(q.Forth, q.Back, at, bt)
		if places := w.names.find(f.name); len(places) != maxPlacesPerName || slices.Contains(places, at) {
			t.Errorf("the name is at %d places, with the one that has no room: %v", len(places), slices.Contains(places, at))
		}
	})
}

// TestLabelsProperty checks that, whatever names and links do, each path leads to its ends, and that
// nothing is left after the last lease. At least 10,000 paths are made and removed, while labels
// wrap around and switches are slow to remove rules; flowTable fails on a label with two meanings.
func TestLabelsProperty(t *testing.T) {
	const names, places, wanted = 24, 6, 10_000
	in(t, Options{Lease: MinLease, MaxPaths: 1000, Log: slog.New(slog.DiscardHandler)}, func(w *world) {
		w.ledger.removal = sweepInterval / 2
		var owners [names]owner
		for i := range owners {
			owners[i] = numbered(i)
		}
		made := func() uint64 {
			w.paths.mu.Lock()
			defer w.paths.mu.Unlock()
			return w.paths.nextID
		}
		property := func(t *rapid.T) {
			at := map[int]place{}
			checked := map[uint64][]network.Hop{} // by path
			hello := func(t *rapid.T, name int) {
				p := rapid.IntRange(0, places-1).Draw(t, "place")
				at[name] = host(openflow.DatapathID(p%4+1), byte(p))
				w.say(owners[name], at[name])
			}
			for name := range names {
				hello(t, name)
			}
			t.Repeat(map[string]func(*rapid.T){
				"hello": func(t *rapid.T) { hello(t, rapid.IntRange(0, names-1).Draw(t, "name")) },
				"each asks for another": func(t *rapid.T) {
					distance := rapid.IntRange(1, names-1).Draw(t, "distance")
					for from := range names {
						w.ask(owners[from], at[from], owners[(from+distance)%names].name)
					}
				},
				"wrap-around": func(t *rapid.T) {
					w.paths.mu.Lock()
					defer w.paths.mu.Unlock()
					w.paths.labels.last = uint16(rapid.IntRange(firstLabel, firstLabel+8).Draw(t, "label"))
				},
				"link": func(t *rapid.T) {
					w.net.SetTopology(ring(openflow.DatapathID(rapid.IntRange(0, 4).Draw(t, "cut"))))
					w.NetworkChanged(network.Event{Kind: network.LinkDown})
					w.pass(2 * rerouteDelay)
				},
				"time": func(t *rapid.T) {
					w.pass(time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second)
				},
				"": func(t *rapid.T) {
					w.sent()
					for _, p := range w.paths.routes() {
						if missing, _ := kit.MissingLink(w.net, p.hops); missing != "" {
							t.Fatalf("path %d: %s", p.id, missing)
						}
						if slices.Equal(checked[p.id], p.hops) {
							continue
						}
						checked[p.id] = p.hops
						w.leads(p.toHigh, p.toLow, p.low.place, p.high.place)
					}
				},
			})
			w.pass(MinLease + leaseGrace + 2*sweepInterval)
			for at := range w.names.byPort {
				w.names.portDown(at)
			}
			for range names * names { // so many rounds suffice even if paths are removed one after the other
				if w.paths.flows.Len() > 0 {
					w.pass(w.ledger.removal)
				}
			}
			if n := w.rules(); n != 0 || len(w.paths.labels.taken) != 0 || w.paths.flows.Len() != 0 || len(w.paths.byName) != 0 {
				t.Fatalf("%d rules are left", n)
			}
		}
		for before := made(); before < wanted && !t.Failed(); before = made() {
			rapid.Check(t, property)
			if made() == before {
				t.Error("no path is made")
				break
			}
		}
	})
}

// A label of another host, or one that was released, leads nowhere.
func TestForeignLabel(t *testing.T) {
	in(t, Options{}, func(w *world) {
		a, b, at, bt, xt := numbered(1), numbered(2), host(1, 1), host(2, 2), host(1, 9)
		w.say(b, bt)
		w.ask(a, at, b.name)
		q := w.request(bt)
		for name, from := range map[string]place{
			"its own port":                      xt,
			"its own port, with both another's": {xt.At, at.MAC},
			"another's port":                    {at.At, xt.MAC},
		} {
			if to, _ := w.arrives(q.Forth, from, bt); to != (network.PortRef{}) {
				t.Errorf("from %s it arrives at %v", name, to)
			}
		}
	})
}

// A pair of hosts can use all labels, and each is allocated once.
func TestLabels(t *testing.T) {
	l, a, b := newPaths(&Options{}).labels, host(1, 1).MAC, host(1, 2).MAC
	var all []uint16
	for range maxLabels {
		all = append(all, l.allocate(a, b))
	}
	if l.allocate(a, b) != 0 || l.allocate(b, a) == 0 {
		t.Error("one direction is not full, or the other is")
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) != maxLabels || all[0] != firstLabel || all[maxLabels-1] != lastLabel {
		t.Errorf("%d labels from %d on", len(all), all[0])
	}
	l.release(a, b, firstLabel+7)
	if x := l.allocate(a, b); x != firstLabel+7 {
		t.Errorf("label %d is taken twice", x)
	}
	c := host(1, 3).MAC
	x := l.allocate(a, c)
	if l.release(a, c, x); l.allocate(a, c) == x {
		t.Error("a label is taken again at once")
	}
}

// Many concurrent requests, with links that fail and return and slow switches, leave a consistent
// state.
func TestAtOnce(t *testing.T) {
	in(t, Options{Lease: MinLease}, func(w *world) {
		w.ledger.SetOnApply(func(_ context.Context, key string) error {
			pause.For(time.Duration(len(key)*int(key[len(key)-1])%50)*time.Millisecond, "the switch takes its time")
			if key[len(key)-1] == '7' {
				return context.DeadlineExceeded
			}
			return nil
		})
		for i := range 8 {
			w.say(numbered(i), host(openflow.DatapathID(i%4+1), byte(i)))
		}
		for round := range 50 {
			w.net.SetTopology(ring(openflow.DatapathID(round % 6)))
			w.NetworkChanged(network.Event{Kind: network.LinkDown})
			for i := range 64 {
				from, to := i%8, (i/8+i)%8
				if from == to {
					continue
				}
				x := w.hello(numbered(from), host(openflow.DatapathID(from%4+1), byte(from)))
				x.request = &frame.PathRequest{ID: uint64(i), Destination: numbered(to).name, Hello: x.hello}
				x.send = w.net
				w.process(x)
			}
			w.pass(time.Duration(round%7) * 10 * time.Millisecond)
		}
		w.net.SetTopology(ring())
		w.pass(MinLease / 2)
		for _, p := range w.paths.routes() {
			if missing, _ := kit.MissingLink(w.net, p.hops); missing == "" {
				w.leads(p.toHigh, p.toLow, p.low.place, p.high.place)
			}
		}
		if n := len(w.ledger.Programs()) - 1; n != w.paths.count() || n == 0 {
			t.Errorf("%d programs for %d paths", n, w.paths.count())
		}
		w.pass(MinLease + leaseGrace + 2*sweepInterval)
		if n := w.rules(); n != 0 || len(w.paths.labels.taken) != 0 || w.paths.flows.Len() != 0 {
			t.Errorf("%d rules are left, %d paths counted", n, w.paths.flows.Len())
		}
	})
}
