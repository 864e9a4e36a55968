package discovery

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func ref(s, p int) topology.PortRef {
	return topology.PortRef{Switch: openflow.DatapathID(s), Port: uint32(p)}
}

// wire is a simulated network: probes go out of a port and arrive, after the delay, at the port
// at the cable's other end.
type wire struct {
	t     *testing.T
	d     *Discovery
	now   time.Time
	cable map[topology.PortRef]topology.PortRef // one direction each
	delay time.Duration
	slow  map[topology.PortRef]time.Duration // additional delay of the direction from a port
	rtt   map[openflow.DatapathID]time.Duration
	heard map[topology.PortRef][]byte // the latest probe out of each port
	log   []string
	// full holds cables that carry packets and lose probes.
	full map[topology.PortRef]bool
	// counts holds the packets that ports have received and sent.
	counts map[topology.PortRef][2]uint64
}

func newWire(t *testing.T, o Options, ports ...topology.PortRef) *wire {
	w := &wire{
		t: t, now: t0, d: New(o, t0), delay: time.Millisecond,
		cable: map[topology.PortRef]topology.PortRef{}, heard: map[topology.PortRef][]byte{}, rtt: map[openflow.DatapathID]time.Duration{},
		full: map[topology.PortRef]bool{}, counts: map[topology.PortRef][2]uint64{},
	}
	for _, p := range ports {
		w.note(w.d.PortUp(p, openflow.MAC{2}, w.now))
	}
	return w
}

func (w *wire) connect(a, b topology.PortRef) { w.cable[a], w.cable[b] = b, a }

func (w *wire) note(cs []Change) {
	for _, c := range cs {
		switch c.Kind {
		case LinkUp:
			w.log = append(w.log, fmt.Sprintf("up %v-%v", c.Link.From, c.Link.To))
		case LinkDown:
			w.log = append(w.log, fmt.Sprintf("down %v-%v", c.Link.From, c.Link.To))
		case EdgeUp:
			w.log = append(w.log, fmt.Sprintf("edge %v", c.Port))
		case LinkUnprobed:
			w.log = append(w.log, fmt.Sprintf("unprobed %v-%v", c.Link.From, c.Link.To))
		}
	}
}

// took returns what happened since its last call.
func (w *wire) took() string {
	s := strings.ReplaceAll(strings.Join(w.log, ", "), "000000000000000", "")
	w.log = nil
	return s
}

func (w *wire) receive(frame []byte, at topology.PortRef) error {
	h, err := packet.Parse(frame)
	if err != nil {
		w.t.Fatal(err)
	}
	cs, err := w.d.Receive(frame, &h, at, w.now, func(s openflow.DatapathID) Control { return Control{RoundTrip: w.rtt[s]} })
	w.note(cs)
	return err
}

// run lets time pass in the steps that Tick returns.
func (w *wire) run(d time.Duration) {
	end := w.now.Add(d)
	for {
		due := w.d.Tick(w.now)
		w.note(due.Changes)
		for _, p := range due.Count {
			n := w.counts[p]
			w.d.Counted(p, n[0], n[1], w.now)
		}
		for _, p := range due.Probe {
			f := w.d.Probe(nil, p, w.now)
			w.heard[p] = f
			if to, ok := w.cable[p]; ok && !w.full[p] {
				now := w.now
				w.now = now.Add(w.delay + w.slow[p] + w.rtt[p.Switch]/2 + w.rtt[to.Switch]/2)
				if err := w.receive(f, to); err != nil {
					w.t.Errorf("true probe from %v refused: %v", p, err)
				}
				w.now = now
			}
		}
		next := due.Next
		if next.After(end) {
			break
		}
		if !next.After(w.now) {
			next = w.now.Add(time.Millisecond)
		}
		w.carry(next.Sub(w.now))
		w.now = next
	}
	w.now = end
}

// carry lets full cables carry packets for a while.
func (w *wire) carry(d time.Duration) {
	for from := range w.full {
		packets := uint64(d.Milliseconds())
		w.counts[from] = [2]uint64{w.counts[from][0], w.counts[from][1] + packets}
		if to, ok := w.cable[from]; ok {
			w.counts[to] = [2]uint64{w.counts[to][0] + packets/4, w.counts[to][1]}
		}
	}
}

func TestLinksAndEdges(t *testing.T) {
	w := newWire(t, Options{}, ref(1, 1), ref(1, 2), ref(2, 1), ref(2, 2))
	w.connect(ref(1, 2), ref(2, 2))
	w.run(500 * time.Millisecond)
	if w.d.IsEdge(ref(1, 1)) {
		t.Error("a port is an edge port before it was probed for long")
	}
	w.run(time.Second)
	if got, want := w.took(), "up 1/2-2/2, up 2/2-1/2, edge 1/1, edge 2/1"; got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	if got := w.d.EdgePorts(1); len(got) != 1 || got[0] != 1 {
		t.Errorf("edge ports %v, want [1]", got)
	}
	w.run(time.Minute)
	if got := w.took(); got != "" {
		t.Errorf("in a quiet minute: %s", got)
	}
	w.note(w.d.PortDown(ref(1, 2)))
	if got, want := w.took(), "down 1/2-2/2, down 2/2-1/2"; got != want {
		t.Errorf("port down: got %q, want %q", got, want)
	}
}

// TestWayBackIsProbedAtOnce lets switches connect one after the other. A probe to a switch that
// is not known yet is lost; the direction to it must be probed at once when the other direction
// is found.
func TestWayBackIsProbedAtOnce(t *testing.T) {
	w := newWire(t, Options{}, ref(1, 1))
	w.connect(ref(1, 1), ref(2, 1))
	w.run(50 * time.Millisecond)
	w.note(w.d.PortUp(ref(2, 1), openflow.MAC{2}, w.now))
	w.run(10 * time.Millisecond) // the probe from 2/1 arrives
	w.run(10 * time.Millisecond)
	if got, want := w.took(), "up 2/1-1/1, up 1/1-2/1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestProbesArePaced(t *testing.T) {
	w := newWire(t, Options{Interval: time.Second, Burst: 10})
	for p := range 100 {
		w.d.PortUp(ref(1, p+1), openflow.MAC{2}, w.now)
	}
	count, most := map[topology.PortRef]int{}, 0
	for end := w.now.Add(21 * time.Second); w.now.Before(end); w.now = w.now.Add(10 * time.Millisecond) {
		send := w.d.Tick(w.now).Probe
		most = max(most, len(send))
		if w.now.Sub(t0) > time.Second {
			for _, p := range send {
				count[p]++
			}
		}
	}
	if most > 10 {
		t.Errorf("%d probes at once, bound is 10", most)
	}
	for p, n := range count {
		if n < 19 || n > 24 {
			t.Errorf("%v was probed %d times in 20 s, want 20 to 23", p, n)
		}
	}
	if len(count) != 100 {
		t.Errorf("%d of 100 ports were probed", len(count))
	}
}

func TestSilentDeath(t *testing.T) {
	w := newWire(t, Options{Interval: time.Second, Lifetime: 3 * time.Second}, ref(1, 1), ref(2, 1))
	w.connect(ref(1, 1), ref(2, 1))
	w.run(2 * time.Second)
	w.took()
	delete(w.cable, ref(1, 1)) // one direction fails silently
	w.run(5 * time.Second)
	if got, want := w.took(), "down 1/1-2/1"; got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	if links := w.d.Links(); len(links) != 1 || links[0].From != ref(2, 1) {
		t.Errorf("the other direction is left, got %v", links)
	}
	if w.d.IsEdge(ref(1, 1)) || w.d.IsEdge(ref(2, 1)) {
		t.Error("the ends of half a link are no edge ports")
	}
	delete(w.cable, ref(2, 1))
	w.run(10 * time.Second)
	if got, want := w.took(), "down 2/1-1/1, edge 2/1, edge 1/1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestStandstill checks that a controller which has stalled for longer than a link's lifetime
// removes no link, because it has sent no probes.
func TestStandstill(t *testing.T) {
	w := newWire(t, Options{Interval: time.Second, Lifetime: 3 * time.Second}, ref(1, 1), ref(2, 1))
	w.connect(ref(1, 1), ref(2, 1))
	w.run(2 * time.Second)
	w.took()
	for range 3 {
		w.now = w.now.Add(10 * time.Second)
		w.run(1500 * time.Millisecond)
		if got := w.took(); got != "" {
			t.Errorf("after a standstill: %q", got)
		}
	}
	w.now = w.now.Add(10 * time.Second)
	delete(w.cable, ref(1, 1))
	w.run(2500 * time.Millisecond)
	if got, want := w.took(), "down 1/1-2/1"; got != want {
		t.Errorf("cut meanwhile: got %q, want %q", got, want)
	}
}

// A port is settling until it is an edge port or shows that there is a link.
func TestSettling(t *testing.T) {
	w := newWire(t, Options{}, ref(1, 1), ref(1, 2), ref(2, 1))
	w.connect(ref(1, 1), ref(2, 1))
	settling := func() (all []bool) {
		for _, at := range []topology.PortRef{ref(1, 1), ref(1, 2), ref(2, 1), ref(3, 1)} {
			all = append(all, w.d.IsSettling(at))
		}
		return all
	}
	if got, want := settling(), []bool{true, true, true, false}; !slices.Equal(got, want) {
		t.Errorf("before any probe: %v, want %v", got, want)
	}
	w.run(DefaultSettle / 2)
	if got, want := settling(), []bool{false, true, false, false}; !slices.Equal(got, want) {
		t.Errorf("after the first probes: %v, want %v", got, want)
	}
	w.run(DefaultSettle)
	w.note(w.d.PortDown(ref(2, 1))) // the other end has had a link
	if got, want := settling(), []bool{false, false, false, false}; !slices.Equal(got, want) {
		t.Errorf("later: %v, want %v", got, want)
	}
}

func TestCableMoves(t *testing.T) {
	w := newWire(t, Options{Interval: time.Second}, ref(1, 1), ref(2, 1), ref(3, 1))
	w.connect(ref(1, 1), ref(2, 1))
	w.run(2 * time.Second)
	w.took()
	w.connect(ref(1, 1), ref(3, 1))
	delete(w.cable, ref(2, 1))
	w.run(6 * time.Second)
	got := w.took()
	for _, want := range []string{"down 1/1-2/1, up 1/1-3/1", "up 3/1-1/1", "down 2/1-1/1"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
}

func TestSwitchDown(t *testing.T) {
	w := newWire(t, Options{}, ref(1, 1), ref(2, 1), ref(2, 2), ref(3, 1))
	w.connect(ref(1, 1), ref(2, 1))
	w.connect(ref(2, 2), ref(3, 1))
	w.run(2 * time.Second)
	w.took()
	w.note(w.d.SwitchDown(2))
	if got, want := w.took(), "down 2/1-1/1, down 1/1-2/1, down 2/2-3/1, down 3/1-2/2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(w.d.Links()) != 0 {
		t.Error("links are left")
	}
}

func TestLatency(t *testing.T) {
	w := newWire(t, Options{Interval: time.Second, Window: 4}, ref(1, 1), ref(2, 1), ref(2, 2), ref(3, 1))
	w.connect(ref(1, 1), ref(2, 1))
	w.connect(ref(2, 2), ref(3, 1))
	w.delay = 10 * time.Millisecond
	w.rtt = map[openflow.DatapathID]time.Duration{1: 4 * time.Millisecond, 2: 30 * time.Millisecond} // 3's is unknown
	latency := func(from topology.PortRef) time.Duration {
		for _, l := range w.d.Links() {
			if l.From == from {
				return l.Latency
			}
		}
		t.Fatalf("no link from %v", from)
		return 0
	}
	w.run(3 * time.Second)
	if l := latency(ref(1, 1)); l != 10*time.Millisecond {
		t.Errorf("latency %v, want 10ms whatever the control round trips", l)
	}
	if l := latency(ref(2, 2)); l != 0 {
		t.Errorf("latency %v with a control round trip unknown, want none", l)
	}
	w.delay = 20 * time.Millisecond
	w.run((RecentFlights + 3) * time.Second)
	if l := latency(ref(1, 1)); l < 13*time.Millisecond || l > 19500*time.Microsecond {
		t.Errorf("some intervals after the change: %v, want to be on the way to 20ms", l)
	}
	w.run(20 * time.Second)
	if l := latency(ref(1, 1)); l < 19900*time.Microsecond || l > 20100*time.Microsecond {
		t.Errorf("long after: %v, want 20ms", l)
	}
	w.delay = 5 * time.Millisecond
	w.run(20 * time.Second)
	if l := latency(ref(1, 1)); l < 4900*time.Microsecond || l > 5100*time.Microsecond {
		t.Errorf("long after it has become shorter: %v, want 5ms", l)
	}
}

// TestLatencyOfEachDirection checks that each direction of each link of a ring has its own
// latency, whatever the delays of the controller's connections to the switches.
func TestLatencyOfEachDirection(t *testing.T) {
	const ms = time.Millisecond
	w := newWire(t, Options{Interval: time.Second}, ref(1, 1), ref(1, 2), ref(2, 1), ref(2, 2), ref(3, 1), ref(3, 2), ref(4, 1), ref(4, 2))
	w.rtt = map[openflow.DatapathID]time.Duration{1: 1, 2: 10 * ms, 3: 40 * ms, 4: 3 * ms}
	w.delay = 0
	w.slow = map[topology.PortRef]time.Duration{
		ref(1, 2): 1 * ms, ref(2, 1): 1 * ms, ref(2, 2): 5 * ms, ref(3, 1): 5 * ms,
		ref(3, 2): 20 * ms, ref(4, 1): 20 * ms, ref(4, 2): 3 * ms, ref(1, 1): 12 * ms,
	}
	for i := 1; i <= 4; i++ {
		w.connect(ref(i, 2), ref(i%4+1, 1))
	}
	w.run(time.Minute)
	links := w.d.Links()
	if len(links) != 8 {
		t.Fatalf("%d links, want 8", len(links))
	}
	for _, l := range links {
		if off := l.Latency - w.slow[l.From]; off.Abs() > time.Microsecond {
			t.Errorf("from %v latency %v, want %v", l.From, l.Latency, w.slow[l.From])
		}
	}
}

// TestHostCannotForge plays a hostile host: it has received every probe that leaves its own
// port, and may send anything into that port.
func TestHostCannotForge(t *testing.T) {
	host, victim := ref(1, 1), ref(2, 1)
	w := newWire(t, Options{Interval: time.Second}, host, victim, ref(1, 2), ref(2, 2))
	w.connect(ref(1, 2), ref(2, 2))
	w.run(2 * time.Second)
	w.took()
	change := func(f []byte, at int) []byte {
		f = append([]byte(nil), f...)
		f[at] ^= 1
		return f
	}
	heard := w.heard[host]
	body := len(heard) - 2 - hashSize - bodySize
	other := New(Options{}, t0)
	other.PortUp(victim, openflow.MAC{2}, t0)
	foreign := other.Probe(nil, victim, t0)
	own := append([]byte(nil), foreign...)
	copy(own[len(own)-2-hashSize-bodySize:], heard[body:body+8]) // with our identifier, it knows that much
	cut := heard[:len(heard)-10]
	for _, tt := range []struct {
		name  string
		frame []byte
		want  error
	}{
		{"another switch", change(heard, body+15), ErrForged},
		{"another port", change(heard, body+19), ErrForged},
		{"another number", change(heard, body+27), ErrForged},
		{"another time", change(heard, body+35), ErrForged},
		{"another hash", change(heard, len(heard)-3), ErrForged},
		{"made with a key of its own", own, ErrForged},
		{"of another controller", foreign, ErrForeign},
		{"cut short", cut, ErrMalformed},
		{"plain LLDP", appendTLV(heard[:14:14], tlvEnd, nil), ErrForeign},
		{"a link's probe, received already", w.heard[ref(1, 2)], ErrReplayed},
	} {
		if err := w.receive(tt.frame, host); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	// Its own probe sent back makes neither a link nor an edge port.
	if err := w.receive(heard, host); err != nil {
		t.Errorf("own probe: %v", err)
	}
	if w.d.IsEdge(host) {
		t.Error("a port that hears itself is an edge port")
	}
	// A probe kept for later is too old.
	kept := w.d.Probe(nil, victim, w.now)
	w.now = w.now.Add(DefaultMaxAge + time.Millisecond)
	if err := w.receive(kept, host); !errors.Is(err, ErrReplayed) {
		t.Errorf("old probe: %v, want %v", err, ErrReplayed)
	}
	if got := w.took(); got != "" || len(w.d.Links()) != 2 {
		t.Errorf("the host has changed something: %q, %v", got, w.d.Links())
	}
}

// TestLateProbes checks that a probe which a full link delays is late and not replayed; only a
// probe that arrives twice is. None of them changes the link.
func TestLateProbes(t *testing.T) {
	a, b := ref(1, 1), ref(2, 1)
	w := newWire(t, Options{Interval: time.Second}, a, b)
	first, second, third := w.d.Probe(nil, a, w.now), w.d.Probe(nil, a, w.now), w.d.Probe(nil, a, w.now)
	w.now = w.now.Add(time.Millisecond)
	for _, step := range []struct {
		name  string
		frame []byte
		pause time.Duration
		want  error
	}{
		{"one in time", second, 0, nil},
		{"one that it has overtaken", first, 0, ErrLate},
		{"that again", first, 0, ErrReplayed},
		{"the one in time again", second, 0, ErrReplayed},
		{"one that was held up for long", third, DefaultMaxAge, ErrLate},
		{"that again", third, 0, ErrReplayed},
	} {
		w.now = w.now.Add(step.pause)
		if err := w.receive(step.frame, b); !errors.Is(err, step.want) {
			t.Errorf("%s: %v, want %v", step.name, err, step.want)
		}
	}
	if got, want := w.took(), "up 1/1-2/1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for range 10 * maxInFlight {
		w.d.Probe(nil, a, w.now)
	}
	if n := len(w.d.port(a).inFlight); n > maxInFlight {
		t.Errorf("%d probes under way are remembered, at most %d should be", n, maxInFlight)
	}
}

func TestGuardedPortsHaveNoLinks(t *testing.T) {
	a, b := ref(1, 1), ref(2, 1)
	w := newWire(t, Options{Guard: func(r topology.PortRef) bool { return r == b }}, a, b)
	relayed := w.d.Probe(nil, a, w.now)
	if err := w.receive(relayed, b); !errors.Is(err, ErrGuarded) {
		t.Errorf("got %v, want %v", err, ErrGuarded)
	}
	if len(w.d.Links()) != 0 {
		t.Error("there is a link through a guarded port")
	}
}

// TestSharedMediumKeepsItsLink checks that a link does not flap on a hub between three switches,
// where every probe arrives twice.
func TestSharedMediumKeepsItsLink(t *testing.T) {
	a, b, c := ref(1, 1), ref(2, 1), ref(3, 1)
	w := newWire(t, Options{Interval: time.Second}, a, b, c)
	for i := range 10 {
		f := w.d.Probe(nil, a, w.now)
		first, second := b, c
		if i%2 == 1 {
			first, second = c, b
		}
		_ = w.receive(f, first)
		if err := w.receive(f, second); !errors.Is(err, ErrReplayed) {
			t.Errorf("second copy: %v", err)
		}
		w.now = w.now.Add(100 * time.Millisecond)
	}
	if got, want := w.took(), "up 1/1-2/1"; !strings.HasPrefix(got, want) || strings.Count(got, "up") > 2 {
		t.Errorf("got %q", got)
	}
}

func FuzzReceive(f *testing.F) {
	d := New(Options{}, t0)
	d.PortUp(ref(1, 1), openflow.MAC{2}, t0)
	d.PortUp(ref(2, 1), openflow.MAC{2}, t0)
	f.Add(d.Probe(nil, ref(1, 1), t0)[14:])
	f.Add([]byte{0xfe, 0, 0, 0})
	head := d.Probe(nil, ref(1, 1), t0)[:14:14]
	f.Fuzz(func(t *testing.T, p []byte) {
		frame := append(head, p...)
		h, _ := packet.Parse(frame)
		cs, err := d.Receive(frame, &h, ref(2, 1), t0, func(openflow.DatapathID) Control { return Control{} })
		if len(cs) == 0 && err != nil {
			return
		}
		// Only the probes made above are authentic.
		if body, sum, err := findBody(p); err != nil || string(sum) != string(hash(d.key, linkLabel, body)) {
			t.Fatalf("bytes made without the key were believed: %v", cs)
		}
	})
}
