package qos

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/services/qos/subflows"
)

// carriedTimeout is how long what a connection outlives may take.
const carriedTimeout = 2 * time.Minute

// pouring is an endless source of random bytes until it is ended.
type pouring struct {
	io.Reader
	over <-chan struct{}
}

// Read implements io.Reader.
func (p pouring) Read(b []byte) (int, error) {
	select {
	case <-p.over:
		return 0, io.EOF
	default:
		return p.Reader.Read(b)
	}
}

// ways returns the paths of subflows, by their names.
func ways(all []subflows.Subflow) map[string]string {
	out := map[string]string{}
	for _, s := range all {
		out[s.ID] = fmt.Sprint(s.Path)
	}
	return out
}

// TestSubflowsOutliveSwitchAndKilledController kills the switch in the middle of a
// subflow's path, and the controller after it, while a connection with three subflows
// carries as much as it can. All bytes arrive, and the subflow of the switch takes another
// path. The next controller leaves all rules as they are, and places what joins then.
func TestSubflowsOutliveSwitchAndKilledController(t *testing.T) {
	t.Parallel()
	w := deploy(t, threePaths("qjoinskill"), "subflows: {enabled: true, paths: 3, idle_timeout: 60s}", false)
	w.byKernel()
	w.during(func() { w.outlive() })
}

// outlive does what the connection has to survive.
func (w *deployed) outlive() {
	t := w.t
	wait := func(what string, f func(all []subflows.Subflow) bool) (all []subflows.Subflow) {
		t.Helper()
		within(t, carriedTimeout, what, func() (err error) {
			if all, err = w.listed(); err == nil && !f(all) {
				err = fmt.Errorf("%v", ways(all))
			}
			return err
		})
		return all
	}
	wait("three subflows on three ways", func(all []subflows.Subflow) bool { return slices.Equal(middles(all), []int{2, 3, 4}) })
	began := time.Now()
	if err := w.lab.Switch("s3").Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait("the subflow of the killed switch to go another way", func(all []subflows.Subflow) bool {
		return len(middles(all)) == 3 && !slices.Contains(middles(all), 3)
	})
	t.Logf("the subflow goes another way after %v", time.Since(began))
	if err := w.lab.Switch("s3").Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.ready()
	// Subflows are moved between full links; what counts is where they are at the kill.
	before, after := w.killed()
	if !slices.Equal(before.rules, after.rules) || len(after.rules) != 3*3*2 {
		t.Errorf("rules before the kill\n%q\nand after it\n%q", before.rules, after.rules)
	}
	if fmt.Sprint(before.ways) != fmt.Sprint(after.ways) || len(after.ways) != 3 {
		t.Errorf("ways before the kill %v, and after it %v", before.ways, after.ways)
	}
	w.ready()
	const another = "10.0.9.9"
	w.run("a", "ip", "address", "add", another+"/16", "dev", "eth0")
	w.run("a", "ip", "mptcp", "endpoint", "add", another, "subflow")
	wait("another subflow", func(all []subflows.Subflow) bool { return len(all) == 4 })
}

// placed holds the paths and rules of subflows.
type placed struct {
	ways  map[string]string
	rules []string
}

// killed kills the controller and starts it again. It returns what there was while it was
// dead, and as soon as it serves its switches again.
func (w *deployed) killed() (before, after placed) {
	w.t.Helper()
	within(w.t, 2*testTimeout, "hosts to be stored, which they are every ten seconds", func() error {
		m, err := w.Metrics(w.t.Context())
		if n := m["sluice_network_hosts_unsaved"]; err == nil && n > 0 {
			err = fmt.Errorf("%.0f are not", n)
		}
		return err
	})
	rules := func() []string {
		r, err := w.rules()
		if err != nil {
			w.t.Fatal(err)
		}
		slices.Sort(r)
		return r
	}
	listed := func() map[string]string {
		all, err := w.listed()
		if err != nil {
			w.t.Fatal(err)
		}
		return ways(all)
	}
	before.ways = listed()
	w.Controller().Kill()
	before.rules = rules()
	if err := w.StartController(context.WithoutCancel(w.t.Context())); err != nil {
		w.t.Fatal(err)
	}
	if err := w.Ready(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	after.rules, after.ways = rules(), listed()
	return before, after
}
