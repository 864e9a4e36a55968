package access

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/host"
)

// listener hears what the router sends to an Ethernet address.
type listener struct {
	*host.Interface
	w *world
}

func (w *world) listener(mac openflow.MAC) *listener { return &listener{w.open(mac), w} }

// say sends frames to the router.
func (l *listener) say(frames ...frame.Frame) {
	l.w.Helper()
	var all [][]byte
	for _, f := range frames {
		all = append(all, f.AppendTo(l.AppendHeader(nil, routerMAC, 0)))
	}
	if err := l.Send(all); err != nil {
		l.w.Fatal(err)
	}
}

// hear is the next frame from the router; nil if none comes within a while.
func (l *listener) hear(within time.Duration) frame.Frame {
	l.w.Helper()
	ctx, cancel := context.WithTimeout(l.w.Context(), within)
	defer cancel()
	all, err := l.Receive(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	if err != nil {
		l.w.Fatal(err)
	}
	f, err := frame.Parse(all[0].Payload)
	if err != nil {
		l.w.Fatal(err)
	}
	return f
}

const (
	soon  = time.Minute            // for what has to come
	never = 200 * time.Millisecond // for what must not
)

// greeted is a host of a number whose frames are the test's own, and which is there.
func (w *world) greeted(n byte) *listener {
	w.Helper()
	w.until("the router to be there", func() bool { return w.links[0].iface() != nil })
	l := w.listener(macOf(n))
	l.say(&frame.Probe{Source: guidOf(n).Short(), Sequence: 7})
	if p, is := l.hear(soon).(*frame.Probe); !is || !p.Ack || p.Sequence != 7 || p.Destination != guidOf(n).Short() {
		w.Fatalf("the answer to a probe is %+v", p)
	}
	return l
}

// A host is heard from its address alone: from that which is declared, or from the first while it is heard there.
func TestClaims(t *testing.T) {
	w := newWorld(t, trouble{}, Options{Hosts: []Host{{GUID: guidOf(1), Key: keyOf(1), MAC: macOf(1)}, {GUID: guidOf(2), Key: keyOf(2)}, {GUID: guidOf(3), Key: keyOf(3)}}})
	w.greeted(3).say(&frame.Deassociate{Entity: guidOf(3).Short()})
	thief := w.listener(macOf(66))
	thief.say(&frame.Probe{Source: guidOf(1).Short()}, &frame.Associate{Client: guidOf(1).Short()}) // its address is declared
	thief.say(&frame.Probe{Source: 0xdead})                                                         // is nobody's
	thief.say(&frame.CSYN{Hop: 1, Packets: 1}, &frame.Deassociate{Entity: guidOf(1).Short()})
	w.until("all to be refused", func() bool { c := w.Counters(); return c.Claims == 2 && c.Strangers == 3 })
	w.listener(macOf(1)).say(&frame.Probe{Source: guidOf(2).Short()}, &frame.Associate{Client: guidOf(3).Short()}) // is declared for another
	w.until("these to be refused", func() bool { return w.Counters().Claims == 4 })

	two := w.greeted(2)
	thief.say(&frame.Probe{Source: guidOf(2).Short()}, &frame.Deassociate{Entity: guidOf(2).Short()}) // it is elsewhere
	two.say(&frame.Probe{Source: guidOf(3).Short()})                                                  // nobody is two hosts
	w.until("these to be refused", func() bool { return w.Counters().Claims == 6 })
	w.greeted(1)
	if c := w.Counters(); c.There != 2 || thief.hear(never) != nil {
		t.Errorf("%+v, or the thief is answered", c)
	}
	two.say(&frame.Deassociate{Entity: guidOf(2).Short()})
	w.until("the host to be gone", func() bool { return w.Counters().There == 1 })
	thief.say(&frame.Probe{Source: guidOf(2).Short(), Destination: 0x1234}) // not the router
	w.until("the first to be heard again", func() bool { return w.Counters().There == 2 })
	if f := thief.hear(never); f != nil {
		t.Errorf("a probe for another is answered by %+v", f)
	}
}

// wire is a chunk of host 1 for a name.
func wire(t *testing.T, to frame.GUID, payload string, change func(*frame.RoutingHeader, *frame.TransportHeader)) []byte {
	t.Helper()
	r := frame.RoutingHeader{Source: frame.Address{GUID: guidOf(1)}, Destination: frame.Address{GUID: to}, ChunkSize: uint32(transportSize + len(payload))}
	var tr frame.TransportHeader
	change(&r, &tr)
	b, err := r.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	return append(tr.AppendTo(b), payload...)
}

// Chunks that cannot be sent end, are counted, and are in the way of no others; what the format leaves open is taken either way.
func TestChunksOfAHost(t *testing.T) {
	w := newWorld(t, trouble{}, Options{})
	ours, ctx := w.ours(9), w.patiently()
	one, _ := w.original(1)
	invalid := uint64(0)
	for name, x := range map[string]struct {
		wrong  bool
		change func(*frame.RoutingHeader, *frame.TransportHeader)
	}{
		"plain":          {false, func(*frame.RoutingHeader, *frame.TransportHeader) {}},
		"payload counts": {false, func(r *frame.RoutingHeader, _ *frame.TransportHeader) { r.ChunkSize -= transportSize }},
		"all counts":     {false, func(r *frame.RoutingHeader, _ *frame.TransportHeader) { r.ChunkSize += 60 }},
		"anycast":        {false, func(r *frame.RoutingHeader, _ *frame.TransportHeader) { r.Service = frame.Anycast }},
		"extension": {false, func(r *frame.RoutingHeader, _ *frame.TransportHeader) {
			r.Extensions = []frame.Extension{{}}
		}},
		"foreign source":  {true, func(r *frame.RoutingHeader, _ *frame.TransportHeader) { r.Source.GUID = guidOf(2) }},
		"name for source": {true, func(r *frame.RoutingHeader, _ *frame.TransportHeader) { r.Source.GUID = nameOf(1) }},
		"broadcast":       {true, func(r *frame.RoutingHeader, _ *frame.TransportHeader) { r.Service = frame.Broadcast }},
		"custody":         {true, func(r *frame.RoutingHeader, _ *frame.TransportHeader) { r.Service = frame.Custody }},
		"unknown":         {true, func(r *frame.RoutingHeader, _ *frame.TransportHeader) { r.Service = 0x0800 }},
		"other protocol":  {true, func(r *frame.RoutingHeader, _ *frame.TransportHeader) { r.Protocol = 1 }},
		"other size":      {true, func(r *frame.RoutingHeader, _ *frame.TransportHeader) { r.ChunkSize++ }},
		"function": {true, func(r *frame.RoutingHeader, _ *frame.TransportHeader) {
			r.Extensions = []frame.Extension{{Service: frame.Compute, Body: []byte{0, 0, 0, 1}}}
		}},
	} {
		if err := one.SendWire(ctx, wire(t, ours.Name, "payload of it", x.change)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if x.wrong {
			invalid++
			continue
		}
		if err := wantOurs(ctx, ours, nameOf(1), [][]byte{[]byte("payload of it")}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := one.SendWire(ctx, []byte("short")); err != nil {
		t.Fatal(err)
	}
	control := func(_ *frame.RoutingHeader, tr *frame.TransportHeader) { tr.Kind = 2 }
	if err := one.SendWire(ctx, wire(t, ours.Name, "", control)); err != nil { // it ends here, rightly
		t.Fatal(err)
	}
	if c := w.Counters(); c.Invalid != invalid+1 {
		t.Errorf("%d are invalid, want %d", c.Invalid, invalid+1)
	}
}

// Services that both profiles have are passed on in both directions; chunks that hosts of the original release cannot read stay
// with their senders.
func TestServices(t *testing.T) {
	w := newWorld(t, trouble{}, Options{})
	ours, ctx := w.ours(9), w.patiently()
	one, _ := w.original(1)
	if err := one.Send(ctx, ours.Name, frame.DelayTolerant|frame.Anycast, []byte("it may wait")); err != nil {
		t.Fatal(err)
	}
	if x, err := ours.Receive(ctx); err != nil || x.Service != frame.DelayTolerant {
		t.Errorf("service %#x, %v", x.Service, err)
	}
	became := make(chan error, 2)
	for _, service := range []frame.Service{frame.Multihoming, frame.ContentResponse} {
		if err := ours.Send(ctx, nameOf(1), service, []byte("chunk"), func(err error) { became <- err }); err != nil {
			t.Fatal(err)
		}
	}
	if x, err := one.Receive(ctx); err != nil || x.Routing.Service != frame.Multihoming {
		t.Errorf("service %#x, %v", x.Routing.Service, err)
	}
	if err := <-became; err != nil {
		t.Error(err)
	}
	w.until("a response of ours to be left with its sender", func() bool { return w.Counters().Refused > 0 })
}

// What one host announces takes no more memory than it may have, nor from others; and is given up when nothing comes.
func TestRoom(t *testing.T) {
	w := newWorld(t, trouble{}, Options{Memory: MinMemory})
	greedy, ours, ctx := w.greeted(1), w.ours(9), w.patiently()
	greedy.say(&frame.CSYN{Hop: 1, Packets: 1<<32 - 1}, &frame.CSYN{Hop: 1, Packets: 0}, &frame.CSYN{Hop: 1, Packets: uint32(maxPackets(mtu) + 1)})
	w.until("these to be refused", func() bool { return w.Counters().Malformed == 3 })
	greedy.say(&frame.CSYN{Hop: 1, Packets: uint32(maxPackets(mtu))})
	if c, is := greedy.hear(soon).(*frame.CACK); !is || c.Packets != uint32(maxPackets(mtu)) || bytes.ContainsFunc(c.Received, func(r rune) bool { return r != 0 }) {
		t.Fatalf("the first answer is %+v", c)
	}
	greedy.say(&frame.CSYN{Hop: 2, Packets: uint32(maxPackets(mtu))})
	for hop := range uint32(3000) {
		greedy.say(&frame.CSYN{Hop: 100 + hop, Packets: 1})
	}
	w.until("what there is no room for", func() bool { return w.Counters().NoRoom == 3001-(maxReassemblies-1) })
	if c := w.Counters(); c.Bytes > MinMemory {
		t.Errorf("%+v", c)
	}
	two, _ := w.original(2)
	if err := errors.Join(sendOriginal(ctx, two, ours.Name, chunks(2)), wantOurs(ctx, ours, nameOf(2), chunks(2))); err != nil {
		t.Error(err)
	}
	greedy.say(&frame.Probe{Source: guidOf(1).Short()})
	w.until("what does not come to be given up", func() bool { return w.Counters().Bytes == 0 })
}

// Frames that come once more, late, or for nothing, change nothing; a CSYN for a chunk that is whole is answered by all bits.
func TestOnceMore(t *testing.T) {
	w := newWorld(t, trouble{}, Options{})
	one, ours, ctx := w.greeted(1), w.ours(9), w.patiently()
	b := wire(t, ours.Name, "only once", func(*frame.RoutingHeader, *frame.TransportHeader) {})
	csyn, first, second := &frame.CSYN{Hop: 5, Packets: 2}, &frame.Data{Hop: 5, Payload: b[:70]}, &frame.Data{Hop: 5, Sequence: 1, Payload: b[70:]}
	one.say(first, second, csyn) // nobody has announced the first
	expect := func(bits byte) {
		t.Helper()
		if c, is := one.hear(soon).(*frame.CACK); !is || c.Hop != 5 || c.Packets != 2 || c.Received[0]&3 != bits {
			t.Fatalf("the answer is %+v, want bits %d", c, bits)
		}
	}
	expect(0)
	one.say(second, second, &frame.Data{Hop: 5, Sequence: 2, Payload: b}, &frame.Data{Hop: 6, Payload: b}, csyn)
	expect(2)
	one.say(first)
	expect(3)
	one.say(csyn, first, second, csyn)
	expect(3)
	expect(3)
	if err := wantOurs(ctx, ours, nameOf(1), [][]byte{[]byte("only once")}); err != nil {
		t.Fatal(err)
	}
	w.until("it to be taken", func() bool { return w.Counters().Taken == 1 })
	one.say(&frame.CSYN{Hop: 5, Packets: 1}) // another chunk
	if c, is := one.hear(soon).(*frame.CACK); !is || c.Packets != 1 || c.Received[0] != 0 {
		t.Errorf("the answer is %+v", c)
	}
	one.say(&frame.CACK{Hop: 9, Packets: 9}, &frame.Probe{Ack: true}, &frame.LSA{})
	pause.For(never, "nothing comes of it")
	if c := w.Counters(); c.Chunks != 0 || c.Taken != 1 || c.Invalid != 0 {
		t.Errorf("%+v", c)
	}
}

// Garbage and floods of one host, and of some who are none, harm no other.
func TestFlood(t *testing.T) {
	w := newWorld(t, trouble{}, Options{})
	bad, ours, ctx := w.greeted(1), w.ours(9), w.patiently()
	two, _ := w.original(2)
	r := rand.New(rand.NewPCG(1, 2))
	flooded := make(chan struct{})
	go func() {
		defer close(flooded)
		for i := range 20_000 {
			b := bad.AppendHeader(nil, routerMAC, 0)
			if i%3 == 0 {
				b[11] = byte(i) // from another
			}
			b = append(b, 0, 0, 0, byte(r.IntN(9)))
			for range r.IntN(40) {
				b = append(b, byte(r.IntN(4)))
			}
			_ = bad.Send([][]byte{b})
			if i%100 == 0 {
				bad.say(&frame.Associate{Client: guidOf(1).Short()}, &frame.Deassociate{Entity: guidOf(1).Short()})
				pause.For(time.Millisecond, "others have their turn")
			}
		}
	}()
	if err := errors.Join(sendOriginal(ctx, two, ours.Name, chunks(2)), wantOurs(ctx, ours, nameOf(2), chunks(2))); err != nil {
		t.Error(err)
	}
	<-flooded
	if c := w.Counters(); c.Malformed == 0 || c.Strangers == 0 || c.Excess == 0 {
		t.Errorf("%+v", c)
	}
}

// Options with which hosts could not be told apart are refused.
func TestOptions(t *testing.T) {
	good := Host{GUID: guidOf(1), Key: keyOf(1), MAC: macOf(1)}
	for name, o := range map[string]Options{
		"none":         {},
		"memory":       {Hosts: []Host{good}, Memory: 1},
		"zero":         {Hosts: []Host{{Key: keyOf(1)}}},
		"group":        {Hosts: []Host{{GUID: guidOf(1), Key: keyOf(1), MAC: openflow.Broadcast}}},
		"same name":    {Hosts: []Host{good, {GUID: guidOf(2), Key: keyOf(1)}}},
		"same MAC":     {Hosts: []Host{good, {GUID: guidOf(2), Key: keyOf(2), MAC: macOf(1)}}},
		"same bits":    {Hosts: []Host{good, {GUID: frame.GUID{0: 9, 19: 1, 16: 0x77}, Key: keyOf(2)}}},
		"twice":        {Hosts: []Host{good}, Others: map[frame.GUID]frame.GUID{guidOf(1): nameOf(2)}},
		"other's":      {Hosts: []Host{good, {GUID: nameOf(1), Key: keyOf(2)}}},
		"others alike": {Hosts: []Host{good}, Others: map[frame.GUID]frame.GUID{guidOf(5): nameOf(5), guidOf(6): nameOf(5)}},
		"ours again":   {Hosts: []Host{good}, Others: map[frame.GUID]frame.GUID{guidOf(5): nameOf(1)}},
		"other's too":  {Hosts: []Host{good}, Others: map[frame.GUID]frame.GUID{nameOf(1): nameOf(5)}},
		"in the past":  {Hosts: []Host{good}, Keep: -1},
	} {
		if _, err := New(o); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(Options{Hosts: []Host{good, {GUID: nameOf(2), Key: keyOf(2)}}}); err != nil {
		t.Error(err)
	}
}

// The GUIDs of hosts that other routers serve are put in place of their names, too.
func TestOthers(t *testing.T) {
	w := newWorld(t, trouble{}, Options{Others: map[frame.GUID]frame.GUID{guidOf(5): nameOf(5)}})
	other, ctx := w.ours(5), w.patiently()
	one, _ := w.original(1)
	if err := errors.Join(sendOriginal(ctx, one, guidOf(5), chunks(1)), wantOurs(ctx, other, nameOf(1), chunks(1))); err != nil {
		t.Error(err)
	}
	sent := make(chan error, 1)
	go func() { sent <- sendOurs(ctx, other, nameOf(1), chunks(2)) }()
	if err := errors.Join(wantOriginal(ctx, one, guidOf(5), 0, chunks(2)), <-sent); err != nil {
		t.Error(err)
	}
}
