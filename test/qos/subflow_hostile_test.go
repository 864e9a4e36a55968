package qos

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/hostile"
	"github.com/sluice-net/sluice/lab/testbed"
)

const (
	// The hostile host's joins, one each madeUpEach. A port may have mostOfPort placed.
	madeUp     = 20_000
	madeUpEach = 250 * time.Microsecond
	mostOfPort = 64
	// mostHeap is how much more the controller may hold meanwhile: a subflow with the rules of
	// three switches is of some kilobytes, and garbage may double that.
	mostHeap = 64 << 20
	// mostLines is how many lines may be written meanwhile: of each kind ten, and one a second.
	mostLines = 200
)

// TestHostileJoins has a host open subflows of connections that it makes up. As many as one
// port may have are placed, each with its rules, until they have been silent; the others
// leave nothing. Meanwhile the next port's further subflows are placed, and its transfer is
// complete.
func TestHostileJoins(t *testing.T) {
	t.Parallel()
	topology := threePaths("qjoinshostile")
	topology.Hosts = append(topology.Hosts, lab.Host{Name: "c"})
	topology.Links = append(topology.Links, lab.Both("c", "s1", delayline.Params{}))
	w := deploy(t, topology, fmt.Sprintf("subflows: {enabled: true, paths: 3, most_per_port: %d, idle_timeout: 5s}", mostOfPort), false)
	w.byKernel()
	before := w.figures()
	sent := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	go func() { sent <- w.makeUp(ctx) }()
	within(t, testTimeout, "some of the made-up ones to be placed", func() error {
		all, err := w.listed()
		if err == nil && len(all) < 16 {
			err = fmt.Errorf("%d", len(all))
		}
		return err
	})
	transferred := make(chan error, 1)
	go func() { transferred <- w.transfer(t.Context(), 16<<20, true) }()
	within(t, testTimeout, "the neighbour's subflows to be placed", func() error {
		all, err := w.listed()
		own := 0
		for _, s := range all {
			if strings.Contains(s.Flow, "10.0.9.") {
				own++
			}
		}
		if err == nil && own != 3 {
			err = fmt.Errorf("%d of %d", own, len(all))
		}
		return err
	})
	most := w.watch(sent)
	if err := <-transferred; err != nil {
		t.Errorf("the neighbour's transfer: %v", err)
	}
	const ordinary = 12 // rules of forwarding that come meanwhile
	within(t, testTimeout, "all of it to be gone", func() error {
		if now := w.figures(); now.subflows > 0 || now.rules > before.rules || now.wanted > before.wanted+ordinary || now.goroutines > before.goroutines+20 || now.held > 0 {
			return fmt.Errorf("before %+v, now %+v", before, now)
		}
		return nil
	})
	after := w.figures()
	t.Logf("before %+v\nmost   %+v\nafter  %+v", before, most, after)
	const each = mostOfPort + 3 // the neighbour's
	for what, c := range map[string]struct{ got, most int }{
		"subflows":                  {most.subflows, each},
		"rules of subflows":         {most.rules, each * 3 * 2},
		"rules that are wanted":     {most.wanted - before.wanted, each*3*2 + 2 + ordinary}, // two by which the port's joins are dropped
		"held packets":              {most.held, 4 * (32 + 3)},
		"goroutines":                {most.goroutines - before.goroutines, 200},
		"bytes of heap":             {most.heap - before.heap, mostHeap},
		"lines of the log":          {after.lines - before.lines, mostLines},
		"bytes of heap that remain": {after.heap - before.heap, mostHeap / 2},
	} {
		if c.got > c.most {
			t.Errorf("%d %s, want %d at most", c.got, what, c.most)
		}
	}
}

// makeUp makes host c join connections that it makes up. Some of the SYNs have its
// neighbour's addresses.
func (w *deployed) makeUp(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	as := func(name string) hostile.Host {
		return hostile.Host{MAC: w.lab.Host(name).MAC(), Addr: w.lab.Host(name).Addr()}
	}
	self, neighbour, victim := as("c"), as("a"), as("b")
	var kind hostile.FrameKind
	for _, k := range hostile.FrameKinds() {
		if k.Name == "joins" {
			kind = k
		}
	}
	sent, err := testbed.SendFrames(ctx, w.lab.Host("c"), "eth0", madeUpEach, func(b []byte, n uint64) []byte {
		if n == madeUp-1 {
			cancel()
		}
		if n%16 == 5 {
			return kind.Append(b, n, neighbour, victim)
		}
		return kind.Append(b, n, self, victim)
	})
	if err == nil && sent != madeUp {
		err = fmt.Errorf("%d of %d joins were sent", sent, madeUp)
	}
	return err
}

// figures holds what the controller and the switches hold.
type figures struct{ subflows, rules, wanted, held, goroutines, heap, resident, lines, asked int }

func (w *deployed) figures() (f figures) {
	w.t.Helper()
	all, err := w.listed()
	if err != nil {
		w.t.Fatal(err)
	}
	rules, err := w.rules()
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := w.Metrics(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	log, err := os.ReadFile(w.log)
	if err != nil {
		w.t.Fatal(err)
	}
	sum := func(name string) int { return int(m.Sum(name)) }
	return figures{
		len(all), len(rules), sum("sluice_network_rules"), sum("sluice_network_held_packets"), sum("go_goroutines"),
		sum("go_memstats_heap_alloc_bytes"), sum("process_resident_memory_bytes"), bytes.Count(log, []byte("\n")), sum("sluice_qos_subflow_syns_total"),
	}
}

// watch returns the maxima of all figures until everything has been sent.
func (w *deployed) watch(sent <-chan error) (most figures) {
	w.t.Helper()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		now := w.figures()
		most = figures{
			max(most.subflows, now.subflows), max(most.rules, now.rules), max(most.wanted, now.wanted), max(most.held, now.held),
			max(most.goroutines, now.goroutines), max(most.heap, now.heap), max(most.resident, now.resident), now.lines, now.asked,
		}
		select {
		case err := <-sent:
			if err != nil {
				w.t.Fatal(err)
			}
			return most
		case <-tick.C:
		}
	}
}

// TestJoinsComeUpOnce checks that a join that is not placed comes to the controller once,
// and is forwarded: no other switch on its path punts it again.
func TestJoinsComeUpOnce(t *testing.T) {
	t.Parallel()
	w := deploy(t, threePaths("qjoinsonce"), "subflows: {enabled: true, most_per_port: 1}", false)
	w.byKernel()
	w.during(func() {
		within(t, testTimeout, "three further subflows", func() error {
			joined, err := w.joined()
			if err == nil && joined != 4 {
				err = fmt.Errorf("%d in all", joined)
			}
			return err
		})
	})
	m, err := w.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for outcome, want := range map[string]float64{"placed": 1, "most-of-port": 2, "inside": 0} {
		if got := m[fmt.Sprintf("sluice_qos_subflow_syns_total{outcome=%q}", outcome)]; got != want {
			t.Errorf("%v are %s, want %v", got, outcome, want)
		}
	}
}
