package agents

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/drift"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/kit/servicetest"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/store/memstore"
)

type toAgent = control.Client[message, message]

// world is a registry in a network of one switch, with real agents that do no work.
type world struct {
	*Registry[*toAgent, message, message]
	t   *testing.T
	net *servicetest.Network

	mu   sync.Mutex
	got  []message
	lost []string
	// drift is what agents count.
	drift []drift.Count
}

var home = network.PortRef{Switch: 1, Port: 1}

func newWorld(t *testing.T) *world { return newWorldWith(t, nil) }

// newWorldWith returns a world with configured agents.
func newWorldWith(t *testing.T, configured map[string]AgentRecord) *world {
	w := &world{t: t, net: servicetest.NewNetwork(topology.New(1, []openflow.DatapathID{1}, nil))}
	w.net.SetHost(network.Host{MAC: openflow.MAC{2, 0, 0, 0, 0, 1}, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, At: home})
	w.Registry = New(Options[*toAgent, message, message]{
		Service: "test", Network: w.net, Store: memstore.New(), Log: slog.New(slog.DiscardHandler), Configured: configured,
		Dial: func(r AgentRecord) (*toAgent, error) { return control.NewClient[message, message](r.URL, nil, nil) },
		Event: func(_ *Agent[*toAgent], e control.Event[message, message], _ bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.got = append(w.got, e.Ended...)
		},
		Peers: func(*Agent[*toAgent]) []*Agent[*toAgent] { return []*Agent[*toAgent]{nil} },
		Lost: func(a, _ *Agent[*toAgent], cause error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.lost = append(w.lost, a.Name+": "+cause.Error())
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	running, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- w.While(ctx, func(ctx context.Context) error { close(running); <-ctx.Done(); return nil })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-running
	return w
}

// serve runs an agent, and returns its address.
func (w *world) serve() (s *control.Server[message, message], url string) {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	s = control.NewServer[message](control.Options[message]{Log: slog.New(slog.DiscardHandler), MaxSessions: 3, Drift: func() []drift.Count {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.drift
	}})
	done := make(chan error, 1)
	go func() { done <- s.Serve(l, nil) }()
	w.t.Cleanup(func() {
		s.Close()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	return s, "http://" + l.Addr().String()
}

func (w *world) add(name, url, addr string) {
	w.t.Helper()
	r, faults := Parse(control.AgentSpec{Name: name, URL: url, Addrs: []string{addr}})
	if len(faults) > 0 {
		w.t.Fatal(faults)
	}
	if err := w.Add(w.t.Context(), r); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) eventually(what string, f func() bool) {
	w.t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-deadline:
			w.t.Fatalf("after 10 s still not: %s; %+v", what, w.Infos())
		case <-tick.C:
		}
	}
}

func (w *world) unfit(name string) string {
	s := w.Get(name).State()
	return s.Unfit(netip.MustParseAddr("10.0.0.9"))
}

// TestAgentsLife checks that an agent is followed from its registration until it dies: it is found,
// its records arrive, it is drained, and its work ends when its machine reports that it does not
// run.
func TestAgentsLife(t *testing.T) {
	w := newWorld(t)
	server, url := w.serve()
	w.add("a", url, "10.0.0.1")
	w.eventually("it can be used", func() bool { return w.unfit("a") == "" })
	if p, err := w.Find("a", netip.MustParseAddr("10.0.0.9")); err != nil || p.At != home {
		t.Errorf("it is at %v: %v", p, err)
	}
	if _, err := w.Find("b", netip.MustParseAddr("10.0.0.9")); err == nil || !strings.Contains(err.Error(), `agent "b"`) {
		t.Errorf("one that is not there: %v", err)
	}
	server.Record("one")
	server.Record("two")
	w.eventually("its records have come", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.Equal(w.got, []message{"one", "two"})
	})
	for _, on := range []bool{true, false} {
		if err := w.Drain(t.Context(), "a", on); err != nil || server.Draining() != on || (w.unfit("a") == "is draining") != on {
			t.Errorf("drain %v: %v, at the agent %v, %q", on, err, server.Draining(), w.unfit("a"))
		}
	}
	server.Close()
	w.eventually("it is silent, and lost", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.unfit("a") == "is silent" && len(w.lost) > 0 && strings.Contains(w.lost[0], "does not run")
	})
	if lines := w.Problems(); len(lines) != 1 || !strings.HasPrefix(lines[0], "agent a is silent at http://") {
		t.Errorf("%q", lines)
	}
}

// TestRemove checks that an agent with sessions is removed only by force, and that its sessions
// then end.
func TestRemove(t *testing.T) {
	w := newWorld(t)
	_, url := w.serve()
	w.add("a", url, "10.0.0.1")
	a := w.Get("a")
	a.Take()
	if err := w.Remove(t.Context(), "a", false); err == nil || !strings.Contains(err.Error(), "1 sessions") {
		t.Errorf("with a session: %v", err)
	}
	if err := w.Remove(t.Context(), "a", true); err != nil || w.Get("a") != nil {
		t.Errorf("forced: %v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.lost) != 1 || !strings.Contains(w.lost[0], "removed") {
		t.Errorf("lost: %v", w.lost)
	}
}

// TestNotPlaced checks that an agent that is not found in the network is a problem that names its
// address.
func TestNotPlaced(t *testing.T) {
	w := newWorld(t)
	_, url := w.serve()
	w.add("a", url, "10.0.0.77")
	w.eventually("that is said", func() bool {
		lines := w.Problems()
		return len(lines) == 1 && strings.Contains(lines[0], "no host answers for its data address 10.0.0.77")
	})
	w.net.SetHost(network.Host{IPs: []netip.Addr{netip.MustParseAddr("10.0.0.77")}, At: home})
	w.NetworkChanged(network.Event{Kind: network.HostAdded})
	w.eventually("it is found", func() bool { return w.unfit("a") == "" && len(w.Problems()) == 0 })
}

// TestUnplugged checks that a port that stays down ends the work of its agent, and that a flapping
// port does not.
func TestUnplugged(t *testing.T) {
	w := newWorld(t)
	_, url := w.serve()
	w.add("a", url, "10.0.0.1")
	w.eventually("it can be used", func() bool { return w.unfit("a") == "" })
	down := func(is bool) {
		w.net.SetDown(home, is)
		w.NetworkChanged(network.Event{Kind: map[bool]network.EventKind{true: network.PortDown, false: network.PortUp}[is], Port: home})
	}
	down(true)
	w.eventually("it is passed over", func() bool { return strings.Contains(w.unfit("a"), "port is down") })
	down(false)
	w.eventually("it is used again", func() bool { return w.unfit("a") == "" })
	w.mu.Lock()
	if len(w.lost) > 0 {
		t.Errorf("lost by a port that flapped: %v", w.lost)
	}
	w.mu.Unlock()
	down(true)
	w.eventually("it is lost", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.lost) > 0 && strings.Contains(w.lost[0], errUnplugged.Error())
	})
}

// TestConfigured checks that agents of the configuration are followed, and can be changed and
// removed only there.
func TestConfigured(t *testing.T) {
	rec, faults := Parse(control.AgentSpec{Name: "a", URL: "http://127.0.0.1:1"})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	w := newWorldWith(t, map[string]AgentRecord{"a": rec})
	<-w.Loaded()
	if a := w.Get("a"); a == nil || a.State().URL != rec.URL {
		t.Errorf("it is not followed: %v", a)
	}
	for what, err := range map[string]error{"removed": w.Remove(t.Context(), "a", true), "drained": w.Drain(t.Context(), "a", true), "added": w.Add(t.Context(), rec)} {
		if !errors.Is(err, kit.ErrConfigured) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := w.Configure(t.Context(), nil); err != nil || w.Get("a") != nil {
		t.Errorf("it is configured no more: %v, %v", err, w.Get("a"))
	}
}

// TestTogether checks that each of several agents answers for itself, and that MayPass returns
// those for which others may stand in.
func TestTogether(t *testing.T) {
	all := []*Agent[int]{{Name: "fine"}, {Name: "full"}, {Name: "slow"}, {Name: "wrong"}}
	errs := Together(t.Context(), 50*time.Millisecond, all, func(ctx context.Context, i int, a *Agent[int]) error {
		switch a.Name {
		case "full":
			return &control.Problem{Code: control.CodeFull}
		case "slow":
			<-ctx.Done()
			return ctx.Err()
		case "wrong":
			return control.BadRequest("field", "no")
		}
		return nil
	})
	if pass := errs.MayPass(); !slices.Equal(pass, []int{1, 2}) || errs[0] != nil || !strings.Contains(errs.Err().Error(), "agent wrong: ") {
		t.Errorf("%v: %v", pass, errs)
	}
}

// TestNearest checks that the least loaded of the nearest agents is chosen, and that agents that
// cannot be used are named.
func TestNearest(t *testing.T) {
	list := []Candidate{
		{Name: "far", Costs: []float64{20}},
		{Name: "busy", Costs: []float64{1}, Sessions: 5, Limit: 9},
		{Name: "near", Costs: []float64{2}, Sessions: 1, Throughput: 9},
		{Name: "full", Costs: []float64{0}, Sessions: 3, Limit: 3},
		{Name: "silent", Unfit: "is silent"},
	}
	for _, c := range []struct {
		tolerance float64
		by        Balance
		but       []int
		want      string
	}{
		{0, BalanceSessions, nil, "busy"},
		{2, BalanceSessions, nil, "near"},
		{2, BalanceThroughput, nil, "busy"},
		{2, BalanceSessions, []int{1, 2}, "far"},
	} {
		if i, err := Nearest(list, 0, c.tolerance, c.by, c.but...); err != nil || list[i].Name != c.want {
			t.Errorf("%+v: %d, %v", c, i, err)
		}
	}
	if _, err := Nearest(list, 0, 0, BalanceSessions, 0, 1, 2); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "full is full (3 sessions) silent is silent") {
		t.Errorf("none is left: %v", err)
	}
}
