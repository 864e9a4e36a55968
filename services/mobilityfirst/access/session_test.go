package access

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/host"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
	"github.com/sluice-net/sluice/services/mobilityfirst/hosttest"
)

// What is not taken is sent again in order, less and less often, until something is taken or its time is over.
func TestRetry(t *testing.T) {
	r, err := New(Options{Hosts: []Host{{GUID: guidOf(1), Key: keyOf(1)}}})
	if err != nil {
		t.Fatal(err)
	}
	g, now := r.all[0], time.Now()
	s := &session{guest: g}
	for _, payload := range []string{"first", "second"} {
		if !g.accept(&reassembly{message: &message{to: nameOf(5), service: frame.DelayTolerant, payload: []byte(payload)}}, now) {
			t.Fatal("there is no room")
		}
	}
	f, tries := g.flows[nameOf(5)], 0
	f.running = true
	for ; len(f.queue) > 0; now = now.Add(10 * time.Millisecond) {
		some, _, _ := s.nextChunks(t.Context(), f, now)
		if len(some) == 0 {
			continue
		}
		if len(some) != 2 || string(some[0].payload) != "first" {
			t.Fatalf("%d are sent", len(some))
		}
		tries++
		for _, k := range some {
			s.sendEnded(f, k, hostapi.ErrNotTaken)
		}
	}
	if c := r.Counters(); c.Expired != 2 || c.Bytes != 0 || c.Chunks != 0 || tries < 10 || tries > 25 {
		t.Errorf("%d tries, %+v", tries, c)
	}
}

// Behind a chunk that is left with its sender others of that sender are, too, until the host of ours has heard of it: they would
// else overtake it. Those of others are not, and all are while the host is gone.
func TestBehindRefused(t *testing.T) {
	r, err := New(Options{Hosts: []Host{{GUID: guidOf(1), Key: keyOf(1)}}})
	if err != nil {
		t.Fatal(err)
	}
	s := &session{guest: r.all[0], work: tasks.New()}
	s.work.Stop() // nothing is sent
	began := time.Now()
	for _, x := range []struct {
		what    string
		from    frame.GUID
		service frame.Service
		after   time.Duration
		leaving bool
		want    bool
	}{
		{"a chunk", nameOf(5), 0, 0, false, true},
		{"one that the host cannot read", nameOf(5), frame.Custody, 0, false, false},
		{"the next", nameOf(5), 0, refusalLifetime / 2, false, false},
		{"one of another", nameOf(6), 0, refusalLifetime / 2, false, true},
		{"one that comes once more", nameOf(5), 0, refusalLifetime, false, true},
		{"one while the host is gone", nameOf(6), 0, 2 * refusalLifetime, true, false},
		{"the next when it is back", nameOf(6), 0, 2*refusalLifetime + 1, false, false},
		{"one that comes once more then", nameOf(6), 0, 3 * refusalLifetime, false, true},
	} {
		s.leaving = x.leaving
		if is := s.queue(hostapi.Chunk{From: x.from, Service: x.service}, began.Add(x.after)); is != x.want {
			t.Errorf("%s is taken: %v", x.what, is)
		}
	}
	if n := len(s.giveUp(r.guests[guidOf(1).Short()].incoming[nameOf(5)])); n != 2 {
		t.Errorf("%d chunks are left with their sender, want 2", n)
	}
	if s.queue(hostapi.Chunk{From: nameOf(5)}, time.Now()) {
		t.Error("one behind these is taken")
	}
}

// endedContext is one as it is when it ends just behind what was waited for.
type endedContext struct{ context.Context }

func (endedContext) Err() error { return context.Canceled }

// What the host has acknowledged is taken from its sender, also when all ends just then: it would else come twice.
func TestTakenAtTheEnd(t *testing.T) {
	socket, _ := hosttest.Run(t, host.Options{})
	r, g := alone(t)
	e := newEther(trouble{})
	l, there := &link{router: r, name: "lan"}, e.open(macOf(1))
	l.setInterface(e.open(routerMAC))
	at := place{l, macOf(1)}
	r.handle(at, mtu, (&frame.Associate{Client: guidOf(1).Short()}).AppendTo(nil), time.Now())
	s := &session{guest: g, client: hosttest.Open(t, socket, keyOf(1)), work: tasks.New()}
	defer s.work.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	became := make(chan error, 1)
	if err := hosttest.Open(t, socket, keyOf(2)).Send(ctx, nameOf(1), 0, []byte("once"), func(err error) { became <- err }); err != nil {
		t.Fatal(err)
	}
	x, err := s.client.Receive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	in := &incoming{queue: []hostapi.Chunk{x}}
	s.work.Start(func(context.Context) { s.deliverAll(endedContext{ctx}, in) })
	frames, err := there.Receive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	csyn, err := frame.Parse(frames[0].Payload)
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	r.handle(at, mtu, fullCACK(csyn.(*frame.CSYN)).AppendTo(nil), time.Now())
	r.mu.Unlock()
	select {
	case err := <-became:
		s.work.Stop()
		if err != nil || in.number != 1 || r.Counters().Delivered != 1 {
			t.Errorf("%v, %d are counted, %+v", err, in.number, r.Counters())
		}
	case <-time.After(soon):
		t.Error("it is not taken from its sender")
	}
}

// However many sources there are, those that come again and again keep their numbers, and no more are remembered than may be.
func TestManySources(t *testing.T) {
	for name, service := range map[string]frame.Service{"that are taken": 0, "that are refused": frame.Custody} {
		_, g := alone(t)
		s, now := &session{guest: g, work: tasks.New()}, time.Now()
		s.work.Stop() // nothing is sent
		regular := nameOf(5)
		s.queue(hostapi.Chunk{From: regular}, now)
		s.delivered(g.incoming[regular])
		for n := range uint32(16 * maxIncoming) {
			now = now.Add(time.Millisecond / 10)
			s.queue(hostapi.Chunk{From: frame.GUID{0: 1, 1: byte(n >> 16), 2: byte(n >> 8), 3: byte(n)}, Service: service}, now)
			if n%16 == 0 {
				s.queue(hostapi.Chunk{From: regular}, now)
			}
			if len(g.incoming) > maxIncoming {
				t.Fatalf("%s: %d sources are remembered", name, len(g.incoming))
			}
		}
		if in := g.incoming[regular]; in == nil || in.number != 1 {
			t.Errorf("%s: the number of a source that comes again and again is forgotten", name)
		}
		for _, in := range g.incoming {
			in.active = true
		}
		if s.queue(hostapi.Chunk{From: nameOf(6)}, now) || len(g.incoming) != maxIncoming {
			t.Errorf("%s: one source more is taken while chunks of all are sent", name)
		}
	}
}
