package host

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/custody"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// withStorage contains three hosts: a sender's, which knows a storage node; the node's; a
// receiver's.
func withStorage(t *testing.T) (from, node, to *Endpoint) {
	t.Helper()
	s := newSegment(0)
	a, _ := runHost(t, Options{Storage: []frame.GUID{endpointName(9)}, KeptFor: time.Hour}, 10, s)
	b, _ := runHost(t, Options{}, 20, s)
	c, _ := runHost(t, Options{}, 30, s)
	return attach(t, a, 1), attach(t, b, 9), attach(t, c, 2)
}

// kept sends a chunk that may wait, and returns what the node receives.
func kept(t *testing.T, from, node *Endpoint, to frame.GUID, payload string) []byte {
	t.Helper()
	became := make(chan error, 1)
	if err := from.Send(t.Context(), to, frame.DelayTolerant, []byte(payload), func(err error) { became <- err }); err != nil {
		t.Fatal(err)
	}
	r := receive(t, node)
	if r.From != from.Name || r.Service != frame.Custody {
		t.Fatalf("from %v, service %x", r.From, r.Service)
	}
	if err := <-became; err != nil {
		t.Fatal(err)
	}
	return r.Payload
}

// bring makes a node deliver chunks.
func bring(t *testing.T, node *Endpoint, to frame.GUID, chunks ...[]byte) (became []<-chan error) {
	t.Helper()
	for _, b := range chunks {
		done := make(chan error, 1)
		if err := node.Send(t.Context(), to, frame.Custody, b, func(err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		became = append(became, done)
	}
	return became
}

// A chunk that a storage node delivers is its sender's. Delivered again, while the application has
// it or after it was taken over, it is taken from the node and does not arrive again.
func TestBroughtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, node, to := withStorage(t)
		one, two := kept(t, from, node, to.Name, "one"), kept(t, from, node, to.Name, "two")
		became := bring(t, node, to.Name, one, one, two)
		r, err := to.Receive(t.Context())
		if err != nil || r.From != from.Name || string(r.Payload) != "one" || r.Service != frame.DelayTolerant {
			t.Fatalf("%+v, %v", r, err)
		}
		second := make(chan *Received, 1)
		go func() { second <- receive(t, to) }()
		synctest.Wait() // the same chunk has come once more
		if len(became[0]) > 0 || len(became[1]) > 0 {
			t.Error("one is taken before the application has done so")
		}
		r.Take()
		if r := <-second; string(r.Payload) != "two" {
			t.Errorf("%q has come behind one", r.Payload)
		}
		became = append(became, bring(t, node, to.Name, two, one)...)
		if r := receiveNone(t, to); r != nil {
			t.Errorf("%q has come again", r.Payload)
		}
		for i, c := range became {
			if err := <-c; err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
	})
}

// receiveNone returns the chunk that arrives within some time, if there is one.
func receiveNone(t *testing.T, e *Endpoint) *Received {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := e.Receive(ctx)
	if err != nil {
		return nil
	}
	return r
}

// A chunk that an application has not taken over arrives again for the next one; a taken one does
// not.
func TestBroughtAndNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, node, to := withStorage(t)
		became := bring(t, node, to.Name, kept(t, from, node, to.Name, "one"), kept(t, from, node, to.Name, "two"), kept(t, from, node, to.Name, "three"))
		var got []*Received
		for range 3 {
			r, err := to.Receive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r)
		}
		got[1].Take()
		to.Close()
		next := attach(t, to.host, 2)
		for _, want := range []string{"one", "three"} {
			if r := receive(t, next); string(r.Payload) != want {
				t.Errorf("%q has come, want %q", r.Payload, want)
			}
		}
		for i, c := range became {
			if err := <-c; err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
	})
}

// A chunk with a false signature, or for another name, is discarded, and other chunks arrive. An
// expired one stays with the node.
func TestBroughtFalsely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, node, to := withStorage(t)
		good := kept(t, from, node, to.Name, "good")
		changed := bytes.Clone(good)
		changed[len(changed)-1] ^= 1
		old := &custody.Chunk{ID: custody.ID{Destination: to.Name, Flow: 1, Number: 1}, Until: time.Now().Add(-2 * custody.MaxSkew)}
		old.Sign(newKey(1))
		became := bring(t, node, to.Name, changed, []byte("no chunk"), good, old.AppendTo(nil))
		if r := receive(t, to); string(r.Payload) != "good" {
			t.Errorf("%q", r.Payload)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if r, err := to.Receive(ctx); err == nil {
				t.Errorf("%q has come", r.Payload)
			}
		}()
		for i, c := range became {
			if err := <-c; (err == nil) != (i < 3) {
				t.Errorf("%d: %v", i, err)
			}
		}
		cancel()
		<-ended
		other := &custody.Chunk{ID: custody.ID{Destination: from.Name, Flow: 1, Number: 1}, Until: time.Now().Add(time.Hour)}
		other.Sign(newKey(1))
		bring(t, node, to.Name, other.AppendTo(nil))
		if r := receive(t, to); r.From != node.Name || r.Service != frame.Custody {
			t.Errorf("what is for another name is from %v, service %x", r.From, r.Service)
		}
	})
}

// A node that delivers forged chunks costs little, however many it delivers, and other chunks
// arrive.
func TestBroughtFalselyWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, node, to := withStorage(t)
		good := kept(t, from, node, to.Name, "good")
		changed := bytes.Clone(good)
		changed[len(changed)-1] ^= 1
		came := make(chan *Received, 10)
		go func() {
			for {
				r, err := to.Receive(t.Context())
				if err != nil {
					return
				}
				r.Take()
				came <- r
			}
		}()
		bring(t, node, to.Name, slices.Repeat([][]byte{changed}, forgeriesPerPlace)...)
		synctest.Wait()
		pause.For(10*time.Millisecond, "all have come")
		to.host.mu.Lock()
		if to.host.forgeries.allow(place{to.host.links[1], openflow.MAC{2, 0, 0, 0, 0, 20}}, time.Now()) {
			t.Error("it is believed still")
		}
		to.host.mu.Unlock()
		pause.For(time.Second, "it is looked at again")
		bring(t, node, to.Name, good)
		if r := <-came; string(r.Payload) != "good" {
			t.Errorf("%q", r.Payload)
		}
		if n := len(to.host.custodyFlows.flows); n != 1 {
			t.Errorf("%d flows are remembered", n)
		}
	})
}

// A node with endless flows leaves room for those of other nodes.
func TestFlowsAreBounded(t *testing.T) {
	var b custodyFlows
	b.init()
	now := time.Now()
	node, other := frame.GUID{1}, frame.GUID{2}
	brought := func(by frame.GUID, flow uint64) {
		id := custody.ID{Flow: flow, Number: 1}
		f := b.flow(id, by)
		f.lastUsed = now.Add(time.Duration(flow))
		f.Take(1)
	}
	brought(other, 0)
	for flow := uint64(1); flow < 3*maxFlows; flow++ {
		brought(node, flow)
	}
	if len(b.flows) > maxFlows || len(b.flows) != b.perNode[node]+1 {
		t.Errorf("%d flows of one node, %d in all", b.perNode[node], len(b.flows))
	}
	if b.state(custody.ID{Number: 1}) != custody.Taken {
		t.Error("another node's flow was forgotten")
	}
	b.sweep(now.Add(2 * custody.MaxKept))
	if len(b.flows) > 0 || len(b.perNode) > 0 {
		t.Errorf("%d flows, %d nodes are left", len(b.flows), len(b.perNode))
	}
}

// A refused chunk arrives again, with those behind it, until its time has ended; a taken one does
// not.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSegment(0)
		a, _ := runHost(t, Options{Keep: time.Minute}, 10, s)
		b, _ := runHost(t, Options{}, 20, s)
		from, to := attach(t, a, 1), attach(t, b, 2)
		var became []<-chan error
		for _, payload := range []string{"one", "two", "three"} {
			became = append(became, send(t, from, to.Name, []byte(payload)))
		}
		if r := receive(t, to); string(r.Payload) != "one" {
			t.Fatalf("%q", r.Payload)
		}
		for range 5 {
			r, err := to.Receive(t.Context())
			if err != nil || string(r.Payload) != "two" {
				t.Fatalf("%q, %v", r.Payload, err)
			}
			r.Refuse()
			r.Refuse()
			r.Take() // too late
		}
		for _, want := range []string{"two", "three"} {
			if r := receive(t, to); string(r.Payload) != want {
				t.Fatalf("%q has come, want %q", r.Payload, want)
			}
		}
		for i, c := range became {
			if err := <-c; err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
		became = append(became[:0], send(t, from, to.Name, []byte("never")))
		go func() {
			for {
				r, err := to.Receive(t.Context())
				if err != nil {
					return
				}
				r.Refuse()
			}
		}()
		if err := <-became[0]; !errors.Is(err, ErrKept) {
			t.Error(err)
		}
		if to.untakenBytes != 0 || len(to.untaken) > 0 || b.memory.left+window*1500 < b.Memory {
			t.Errorf("%d bytes are held, %d chunks, %d of %d left", to.untakenBytes, len(to.untaken), b.memory.left, b.Memory)
		}
	})
}

// A chunk that two nodes deliver is delivered once: the second node learns that when the first was
// taken.
func TestBroughtByTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, node, to := withStorage(t)
		other := attach(t, node.host, 8)
		one, two := kept(t, from, node, to.Name, "one"), kept(t, from, node, to.Name, "two")
		became := bring(t, node, to.Name, one)
		r, err := to.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		second := make(chan *Received, 1)
		go func() { second <- receiveNone(t, to) }()
		became = append(became, bring(t, other, to.Name, one, two)...)
		pause.For(5*time.Second, "the other node tries again")
		if len(became[0])+len(became[1])+len(became[2]) > 0 || len(second) > 0 {
			t.Error("one is taken, or two was given, before the application has taken one")
		}
		r.Take()
		if r := <-second; r == nil || string(r.Payload) != "two" {
			t.Errorf("%+v has come behind one", r)
		} else {
			r.Take()
		}
		for i, c := range became {
			if err := <-c; err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
	})
}
