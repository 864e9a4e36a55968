package compute

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/host"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
	"github.com/sluice-net/sluice/services/mobilityfirst/hosttest"
)

var errBad = errors.New("it is bad")

// upper is a function that fails on payloads that begin with "bad".
func upper(_ context.Context, _ *Order, payload []byte) ([]byte, error) {
	if bytes.HasPrefix(payload, []byte("bad")) {
		return nil, errBad
	}
	return bytes.ToUpper(payload), nil
}

// runNode runs a node with the function's name at a host until the test ends, or stop is called.
func runNode(t *testing.T, socket string, f Function) (n *Node, stop func()) {
	t.Helper()
	c, err := hostapi.Open(t.Context(), socket, keyOf(100))
	if err != nil {
		t.Fatal(err)
	}
	n = NewNode(Options{Host: c, Function: f})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var all sync.WaitGroup
	all.Go(func() {
		if err := n.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(stop)
	return n, stop
}

// newCaller attaches a name that calls functions.
func newCaller(t *testing.T, socket string, n byte) *Caller {
	t.Helper()
	h := hosttest.Open(t, socket, keyOf(n))
	c := NewCaller(h, keyOf(n))
	var all sync.WaitGroup
	all.Go(func() { _ = c.Run(context.WithoutCancel(t.Context())) }) // until the host's connection is closed
	t.Cleanup(func() { _ = h.Close(); all.Wait() })
	return c
}

// order sends a call with a payload and returns its result.
func order(t *testing.T, c *Caller, payload string) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	if err := c.Send(t.Context(), nameOf(100), nameOf(3), []byte(payload), func(err error) { done <- err }); err != nil {
		t.Fatal(err)
	}
	return done
}

func within[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case x := <-c:
		return x
	case <-time.After(30 * time.Second):
		t.Fatalf("%s: nothing in 30 s", what)
		panic("not reached")
	}
}

// receiver is a destination.
type receiver struct {
	host *hostapi.Client
	Results
}

// next takes the next result; again reports whether it was taken before.
func (r *receiver) next(t *testing.T) *Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	x, err := r.host.Receive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !Is(x) {
		t.Fatalf("service %#x from %v", x.Service, x.From)
	}
	out, err := r.Open(x, r.host.Name)
	if err != nil {
		t.Fatal(err)
	}
	r.Taken(out)
	if err := r.host.Take(x); err != nil {
		t.Fatal(err)
	}
	return out
}

// A payload that is sent through a function arrives as its result, from the sender, in order, and
// the sender learns when it has.
func TestCalled(t *testing.T) {
	socket, _ := hosttest.Run(t, host.Options{})
	n, _ := runNode(t, socket, upper)
	c, to := newCaller(t, socket, 1), &receiver{host: hosttest.Open(t, socket, keyOf(3))}
	var ended []<-chan error
	const chunks = 100
	for i := range chunks {
		ended = append(ended, order(t, c, fmt.Sprintf("chunk %d", i)))
	}
	ended = append(ended, order(t, c, ""))
	for i := range chunks {
		if r := to.next(t); string(r.Payload) != fmt.Sprintf("CHUNK %d", i) || r.From != nameOf(1) || r.Function != nameOf(100) || r.Again {
			t.Fatalf("result %d is %q, from %v by %v, again: %v", i, r.Payload, r.From, r.Function, r.Again)
		}
	}
	if r := to.next(t); len(r.Payload) > 0 {
		t.Errorf("%q came of nothing", r.Payload)
	}
	for i, done := range ended {
		if err := within(t, "the sender hears", done); err != nil {
			t.Errorf("chunk %d: %v", i, err)
		}
	}
	if c := n.Counters(); c.Called != chunks+1 || c.Failed != 0 || c.False != 0 || c.Chunks != 0 {
		t.Errorf("%+v", c)
	}
}

// The sender of a chunk that the function fails on receives the reason, and others are not delayed.
func TestFails(t *testing.T) {
	socket, _ := hosttest.Run(t, host.Options{})
	n, _ := runNode(t, socket, upper)
	c, to := newCaller(t, socket, 1), &receiver{host: hosttest.Open(t, socket, keyOf(3))}
	bad, good := order(t, c, "bad"), order(t, c, "good")
	if err := within(t, "the sender hears", bad); !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), errBad.Error()) {
		t.Errorf("%v", err)
	}
	if r := to.next(t); string(r.Payload) != "GOOD" {
		t.Errorf("%q", r.Payload)
	}
	if err := within(t, "the sender hears", good); err != nil {
		t.Error(err)
	}
	if c := n.Counters(); c.Called != 1 || c.Failed != 1 {
		t.Errorf("%+v", c)
	}
}

// A chunk whose node ends during the call is processed by the next node, and its result arrives
// once.
func TestNodeGoes(t *testing.T) {
	socket, _ := hosttest.Run(t, host.Options{})
	began := make(chan struct{}, 1)
	_, stop := runNode(t, socket, func(ctx context.Context, o *Order, payload []byte) ([]byte, error) {
		began <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	c, to := newCaller(t, socket, 1), &receiver{host: hosttest.Open(t, socket, keyOf(3))}
	first, second := order(t, c, "first"), order(t, c, "second")
	within(t, "the node works", began)
	stop()
	runNode(t, socket, upper)
	for _, want := range []string{"FIRST", "SECOND"} {
		if r := to.next(t); string(r.Payload) != want || r.Again {
			t.Errorf("%q, again: %v, want %q", r.Payload, r.Again, want)
		}
	}
	if err := errors.Join(within(t, "the sender hears", first), within(t, "the sender hears", second)); err != nil {
		t.Error(err)
	}
}

// A destination takes neither results that a node was not ordered to send, nor duplicates.
func TestResults(t *testing.T) {
	var r Results
	from := func(m *message, sender byte) hostapi.Chunk {
		return hostapi.Chunk{From: nameOf(sender), Service: answerService, Payload: m.append()}
	}
	whole, forged, over := ordered(result, "made"), ordered(result, "made"), ordered(result, "made")
	forged.Number++
	over.Until = time.Now().Add(-48 * time.Hour)
	over.Sign(keyOf(1), nil)
	for what, x := range map[string]struct {
		chunk hostapi.Chunk
		self  byte
		want  error
	}{
		"of another function":     {from(whole, 101), 3, ErrSignature},
		"for another destination": {from(whole, 100), 4, ErrSignature},
		"that nobody has signed":  {from(forged, 100), 3, ErrSignature},
		"that is over":            {from(over, 100), 3, ErrExpired},
		"that is a call":          {from(ordered(call, ""), 100), 3, ErrMessage},
		"that is nothing":         {hostapi.Chunk{From: nameOf(100), Service: answerService}, 3, ErrMessage},
	} {
		if _, err := r.Open(x.chunk, nameOf(x.self)); !errors.Is(err, x.want) {
			t.Errorf("one %s: %v, want %v", what, err, x.want)
		}
	}
	for again := range 3 {
		x, err := r.Open(from(whole, 100), nameOf(3))
		if err != nil || x.Again != (again > 0) {
			t.Fatalf("time %d: %+v, %v", again, x, err)
		}
		r.Taken(x)
	}
	for i := range 3 * maxFlows {
		r.Taken(&Result{id: flowID{flow: uint64(i)}, number: 1})
	}
	if len(r.flows) > maxFlows || len(r.perFunction) != 2 {
		t.Errorf("%d flows of %d functions are remembered", len(r.flows), len(r.perFunction))
	}
	if x, err := r.Open(from(whole, 100), nameOf(3)); err != nil || !x.Again {
		t.Errorf("the flows of one function have another's forgotten: %v", err)
	}
}

// A chunk that is not a call of the function is not taken over, and does not affect others.
func TestFalseCalls(t *testing.T) {
	socket, _ := hosttest.Run(t, host.Options{})
	n, _ := runNode(t, socket, upper)
	other, tampered := ordered(call, "payload"), ordered(call, "payload")
	other.Sign(keyOf(9), nil)
	other.Function = nameOf(101)
	tampered.body = []byte("Payload")
	all := [][]byte{nil, []byte("garbage"), ordered(call, "of another").append(), other.append(), tampered.append(), ordered(result, "").append()}
	strange := byte(20)
	for _, payload := range all {
		for _, service := range []frame.Service{frame.Compute, answerService, 0} {
			from := hosttest.Open(t, socket, keyOf(strange))
			strange++
			err := from.Send(t.Context(), nameOf(100), service, payload, func(err error) {
				if err == nil {
					t.Errorf("%x with service %#x was taken", payload, service)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	c, to := newCaller(t, socket, 1), &receiver{host: hosttest.Open(t, socket, keyOf(3))}
	done := order(t, c, "good")
	if r := to.next(t); string(r.Payload) != "GOOD" {
		t.Errorf("%q", r.Payload)
	}
	if err := within(t, "the sender hears", done); err != nil {
		t.Error(err)
	}
	for deadline := time.Now().Add(30 * time.Second); n.Counters().False < uint64(3*len(all)); {
		if time.Now().After(deadline) {
			t.Fatalf("%+v, want %d false", n.Counters(), 3*len(all))
		}
		pause.For(10*time.Millisecond, "the node reads")
	}
}

// Senders whose results are not taken, and those above their limit, leave room for others; what the
// node holds stays limited, and refused chunks come later, in order.
func TestShare(t *testing.T) {
	socket, _ := hosttest.Run(t, host.Options{})
	n, _ := runNode(t, socket, upper)
	for i := range byte(3) { // fewer than fill what those have of which nothing is known
		h := hosttest.Open(t, socket, keyOf(10+i))
		c := NewCaller(h, keyOf(10+i))
		for range 50 {
			if err := c.Send(t.Context(), nameOf(100), nameOf(200), []byte("for who is away"), func(error) {}); err != nil {
				t.Fatal(err)
			}
		}
	}
	c, to := newCaller(t, socket, 1), &receiver{host: hosttest.Open(t, socket, keyOf(3))}
	var ended []<-chan error
	const chunks = 40 // as many as may be under way
	for i := range chunks {
		ended = append(ended, order(t, c, fmt.Sprintf("%2d%s", i, strings.Repeat("x", 300<<10))))
	}
	for i := range chunks {
		if r := to.next(t); !strings.HasPrefix(string(r.Payload), fmt.Sprintf("%2dX", i)) || r.Again {
			t.Fatalf("result %d is %.5q, again: %v", i, r.Payload, r.Again)
		}
		n.mu.Lock()
		if n.held[unproven] > maxUnproven || n.held[proven] > maxProven {
			t.Errorf("%v bytes are held", n.held)
		}
		n.mu.Unlock()
		if c := n.Counters(); c.Load > 1 || c.Running > c.Chunks || c.Running > n.Workers {
			t.Errorf("%+v", c)
		}
	}
	for _, done := range ended {
		if err := within(t, "the sender hears", done); err != nil {
			t.Error(err)
		}
	}
	if c := n.Counters(); c.Refused == 0 {
		t.Errorf("nobody was refused: %+v", c)
	}
}

// Results for an absent destination wait with their sender, and arrive in order when it is present,
// whether the function is fast or slow.
func TestAway(t *testing.T) {
	for what, f := range map[string]Function{
		"fast": upper,
		"slow": func(ctx context.Context, o *Order, payload []byte) ([]byte, error) {
			pause.For(200*time.Millisecond, "the function is slow")
			return upper(ctx, o, payload)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			socket, _ := hosttest.Run(t, host.Options{})
			n, _ := runNode(t, socket, f)
			c := newCaller(t, socket, 1)
			var ended []<-chan error
			for i := range 12 {
				ended = append(ended, order(t, c, fmt.Sprintf("chunk %2d", i)))
			}
			for deadline := time.Now().Add(time.Minute); n.left() == 0; {
				if time.Now().After(deadline) {
					t.Fatalf("no result was left with its sender: %+v", n.Counters())
				}
				pause.For(10*time.Millisecond, "the node waits")
			}
			to := &receiver{host: hosttest.Open(t, socket, keyOf(3))}
			for i := range ended {
				if r := to.next(t); string(r.Payload) != fmt.Sprintf("CHUNK %2d", i) || r.Again {
					t.Fatalf("result %d is %q, again: %v", i, r.Payload, r.Again)
				}
			}
			for _, done := range ended {
				if err := within(t, "the sender hears", done); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// left returns the number of senders whose processed chunk was refused.
func (n *Node) left() (left int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.senders {
		if s.refused != (callID{}) && s.refused.number == 1 {
			left++
		}
	}
	return left
}

// A sender gets no answer while the function cannot be called, and is served when it can.
func TestUnable(t *testing.T) {
	socket, _ := hosttest.Run(t, host.Options{})
	var times atomic.Int32
	runNode(t, socket, func(ctx context.Context, o *Order, payload []byte) ([]byte, error) {
		if times.Add(1) < 4 {
			return nil, fmt.Errorf("%w: too many processes", ErrUnable)
		}
		return upper(ctx, o, payload)
	})
	c, to := newCaller(t, socket, 1), &receiver{host: hosttest.Open(t, socket, keyOf(3))}
	done := order(t, c, "chunk")
	if r := to.next(t); string(r.Payload) != "CHUNK" {
		t.Errorf("%q", r.Payload)
	}
	if err := within(t, "the sender hears", done); err != nil {
		t.Error(err)
	}
}

// A program that sends with the same name receives no reports about another's calls, and the sender
// of an expired order is told so.
func TestWhoIsTold(t *testing.T) {
	socket, _ := hosttest.Run(t, host.Options{})
	runNode(t, socket, upper)
	c := newCaller(t, socket, 1)
	about := ordered(failure, "reason")
	about.Destination = nameOf(3)
	about.Sign(keyOf(1), nil)
	if c.Hear(hostapi.Chunk{From: nameOf(100), Service: answerService, Payload: about.append()}) {
		t.Error("a failure of another program's call was heard")
	}
	m := ordered(call, "late")
	m.Until = time.Now().Add(-48 * time.Hour)
	m.Sign(keyOf(5), m.body)
	late := hosttest.Open(t, socket, keyOf(5))
	if err := late.Send(t.Context(), nameOf(100), frame.Compute, m.append(), func(error) {}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	x, err := late.Receive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if told, err := parse(x.Payload); err != nil || told.kind != failure || !strings.Contains(string(told.body), ErrExpired.Error()) {
		t.Errorf("%x, %v", x.Payload, err)
	}
}

// Unproven senders only use the room of their kind, and do not increase the load for proven ones.
func TestLoadIsOfProvenSenders(t *testing.T) {
	n := NewNode(Options{})
	n.held[unproven] = maxUnproven
	if l := n.Counters().Load; l != 0 {
		t.Errorf("strangers make a load of %v", l)
	}
	n.held[proven] = maxProven / 4
	if l := n.Counters().Load; l != 0.25 {
		t.Errorf("a quarter is a load of %v", l)
	}
}
