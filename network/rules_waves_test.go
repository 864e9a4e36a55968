package network_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/openflow"
)

// diary records, in order, the changes that take effect on switches.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// take returns the lines recorded since its last call.
func (d *diary) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer func() { d.lines = nil }()
	return d.lines
}

// effects records the changes of a fake switch: changes of the stage rewrite that are made, alone
// or by the commit of a bundle, and barriers after changes.
func (d *diary) effects(dpid openflow.DatapathID) func(openflow.Message) *openflow.Error {
	bundles := map[uint32][]string{}
	dirty := false
	return func(m openflow.Message) *openflow.Error {
		line := func(m openflow.Message) (string, bool) {
			f, ok := m.(*openflow.FlowMod)
			if !ok || f.Priority < network.StageRewrite.Base() || f.Priority >= network.StageAdmit.Base() {
				return "", false
			}
			verb := map[uint8]string{openflow.FlowAdd: "add", openflow.FlowModifyStrict: "modify", openflow.FlowDeleteStrict: "delete"}[f.Command]
			o, _ := f.Match.Get(openflow.FieldTCPDst)
			return fmt.Sprintf("%d %s %d", uint64(dpid), verb, o.Uint()), true
		}
		switch m := m.(type) {
		case *openflow.FlowMod:
			if l, ok := line(m); ok {
				d.note("%s", l)
				dirty = true
			}
		case *openflow.BundleAdd:
			if l, ok := line(m.Message); ok {
				bundles[m.Bundle] = append(bundles[m.Bundle], l)
			}
		case *openflow.BundleControl:
			if m.Op == openflow.BundleCommitRequest {
				d.note("%s", strings.Join(bundles[m.Bundle], " + "))
				dirty = true
			}
		case *openflow.BarrierRequest:
			if dirty {
				d.note("%d barrier", uint64(dpid))
				dirty = false
			}
		}
		return nil
	}
}

// trio is three switches whose changes are recorded.
type trio struct {
	n        *network.Network
	o        *network.Owner
	d        *diary
	switches map[openflow.DatapathID]*fake.Switch
	stops    map[openflow.DatapathID]func()
}

func newTrio(t *testing.T, noBundles bool, refuse func(openflow.DatapathID, openflow.Message) *openflow.Error) *trio {
	t.Helper()
	tr := &trio{d: &diary{}, switches: map[openflow.DatapathID]*fake.Switch{}, stops: map[openflow.DatapathID]func(){}}
	tr.n, _ = networktest.Start(t, network.Config{}, func(n *network.Network) { tr.o = networktest.Owner(t, n, "svc", network.OwnerOptions{}) })
	for _, dpid := range []openflow.DatapathID{1, 2, 3} {
		note := tr.d.effects(dpid)
		tr.switches[dpid] = fake.NewSwitch(fake.Options{DPID: dpid, Ports: 2, NoBundles: noBundles, Refuse: func(m openflow.Message) *openflow.Error {
			if refuse != nil {
				if e := refuse(dpid, m); e != nil {
					return e
				}
			}
			return note(m)
		}})
		tr.stops[dpid] = networktest.Connect(t, tr.n, tr.switches[dpid], dpid)
	}
	return tr
}

// before and later are two programs of switches 1 to 3: the difference is a change
// and an addition on 1, two additions on 2, and two deletions on 3.
var (
	before = networktest.Program(networktest.TCPTo(1, 80, 1), networktest.TCPTo(3, 80, 1), networktest.TCPTo(3, 81, 1))
	later  = networktest.Program(networktest.TCPTo(1, 80, 2), networktest.TCPTo(1, 81, 2), networktest.TCPTo(2, 80, 1), networktest.TCPTo(2, 81, 1))
)

func TestWavesAreWrittenInOrder(t *testing.T) {
	for _, tc := range []struct {
		name      string
		atomic    bool
		noBundles bool
		want      []string
	}{
		{"plain", false, false, []string{
			"2 add 80", "2 add 81", "2 barrier", "1 modify 80", "1 add 81", "1 barrier", "written", "3 delete 81", "3 delete 80", "3 barrier",
		}},
		{"atomic", true, false, []string{
			"2 add 80 + 2 add 81", "2 barrier", "1 modify 80 + 1 add 81", "1 barrier", "written", "3 delete 81 + 3 delete 80", "3 barrier",
		}},
		{"atomic without bundles", true, true, []string{
			"2 add 80", "2 add 81", "2 barrier", "1 modify 80", "1 add 81", "1 barrier", "written", "3 delete 81", "3 delete 80", "3 barrier",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tr := newTrio(t, tc.noBundles, nil)
			o, d := tr.o, tr.d
			networktest.Apply(t, o, "k", before, network.ApplyOptions{})
			d.take()
			var report network.ApplyReport
			networktest.Apply(t, o, "k", later, network.ApplyOptions{
				Atomic: tc.atomic, Waves: [][]openflow.DatapathID{{2}, {9}, {1}}, Report: &report, Written: func() { d.note("written") },
			})
			if got := d.take(); !slices.Equal(got, tc.want) {
				t.Errorf("happened:\n%q\nwant:\n%q", got, tc.want)
			}
			added, modified, deleted := report.Total()
			if added != 3 || modified != 1 || deleted != 2 || len(report.Waves) != 2 || len(report.Switches) != 3 || report.Switches[1].Added != 2 {
				t.Errorf("report %+v", report)
			}
			networktest.Apply(t, o, "k", later, network.ApplyOptions{Waves: [][]openflow.DatapathID{{1}}, Report: &report, Written: func() { d.note("written") }})
			if got := d.take(); !slices.Equal(got, []string{"written"}) || len(report.Switches) != 0 {
				t.Errorf("nothing to do, but %q happened: %+v", got, report)
			}
		})
	}
}

// TestDeletionsLinger checks that deletions wait for the given time after everything is written,
// and are sent at once when the caller no longer waits.
func TestDeletionsLinger(t *testing.T) {
	tr := newTrio(t, false, nil)
	waves := [][]openflow.DatapathID{{2}, {1}}
	networktest.Apply(t, tr.o, "k", before, network.ApplyOptions{})
	tr.d.take()
	networktest.Apply(t, tr.o, "k", later, network.ApplyOptions{Waves: waves, Linger: 100 * time.Millisecond, Written: func() { tr.d.note("written") }})
	if got := tr.d.take(); !slices.Equal(got[len(got)-4:], []string{"written", "3 delete 81", "3 delete 80", "3 barrier"}) {
		t.Errorf("happened: %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	written, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- tr.o.Apply(ctx, "k", before, network.ApplyOptions{Waves: waves, Linger: time.Hour, Written: func() { close(written) }})
	}()
	<-written
	pause.For(100*time.Millisecond, "rules that do not linger would be deleted by then")
	for _, line := range tr.d.take() {
		if strings.Contains(line, "delete") {
			t.Errorf("%q happened before the time to linger was over", line)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("a change that is written, and is waited for no longer: %v", err)
	}
	networktest.Eventually(t, "what was to go is deleted", func() bool { return slices.Contains(tr.d.take(), "2 barrier") })
}

// TestWavesOfBundlesTakeOneRoundTripEach checks that with bundles the first wave is written in one
// round trip, in which the switches of later waves receive their bundles.
func TestWavesOfBundlesTakeOneRoundTripEach(t *testing.T) {
	var mu sync.Mutex
	said := map[openflow.DatapathID][]string{}
	held := make(chan struct{})
	hold := sync.OnceFunc(func() { close(held) })
	note := func(dpid openflow.DatapathID, what string) {
		mu.Lock()
		defer mu.Unlock()
		said[dpid] = append(said[dpid], what)
	}
	tr := newTrio(t, false, func(dpid openflow.DatapathID, m openflow.Message) *openflow.Error {
		switch m := m.(type) {
		case *openflow.BundleAdd:
			note(dpid, "add")
			if dpid == 1 {
				hold()
			}
		case *openflow.BundleControl:
			if dpid == 2 && m.Op == openflow.BundleCommitRequest {
				select {
				case <-held:
				case <-t.Context().Done():
				}
			}
			note(dpid, map[openflow.BundleOp]string{openflow.BundleOpenRequest: "open", openflow.BundleCommitRequest: "commit"}[m.Op])
		case *openflow.BarrierRequest:
			mu.Lock()
			defer mu.Unlock()
			if n := len(said[dpid]); n > 0 && said[dpid][n-1] != "barrier" {
				said[dpid] = append(said[dpid], "barrier")
			}
		}
		return nil
	})
	networktest.Apply(t, tr.o, "k", before, network.ApplyOptions{})
	mu.Lock()
	clear(said)
	mu.Unlock()
	networktest.Apply(t, tr.o, "k", later, network.ApplyOptions{Atomic: true, Waves: [][]openflow.DatapathID{{2}, {1}}})
	mu.Lock()
	defer mu.Unlock()
	for dpid, want := range map[openflow.DatapathID][]string{
		1: {"open", "add", "add", "barrier", "commit", "barrier"},
		2: {"open", "add", "add", "commit", "barrier"},
	} {
		if !slices.Equal(said[dpid], want) {
			t.Errorf("switch %v was sent %v, want %v", dpid, said[dpid], want)
		}
	}
}

// TestRefusedWave checks that the changes of earlier waves are rolled back, last wave first, when
// a switch of the last wave refuses. With bundles the refusing switch's own part never takes
// effect.
func TestRefusedWave(t *testing.T) {
	for _, tc := range []struct {
		name   string
		atomic bool
	}{{"plain", false}, {"atomic", true}} {
		t.Run(tc.name, func(t *testing.T) {
			tr := newTrio(t, false, func(dpid openflow.DatapathID, m openflow.Message) *openflow.Error {
				if add, ok := m.(*openflow.BundleAdd); ok {
					m = add.Message
				}
				if f, ok := m.(*openflow.FlowMod); ok && dpid == 1 && f.Command == openflow.FlowAdd && f.Match == networktest.TCPTo(1, 81, 0).Match {
					return &openflow.Error{Code: openflow.FlowModTableFull}
				}
				return nil
			})
			o, d, switches := tr.o, tr.d, tr.switches
			networktest.Apply(t, o, "k", before, network.ApplyOptions{})
			d.take()
			err := o.Apply(t.Context(), "k", later, network.ApplyOptions{
				Atomic: tc.atomic, Waves: [][]openflow.DatapathID{{2}, {1}}, Written: func() { t.Error("it is said to be written") },
			})
			var re *network.RuleError
			if !errors.As(err, &re) || re.Switch != 1 || !errors.Is(err, network.ErrRefused) {
				t.Fatalf("error %v", err)
			}
			networktest.WantRules(t, switches[1], map[uint16]uint32{80: 1})
			networktest.WantRules(t, switches[2], map[uint16]uint32{})
			networktest.WantRules(t, switches[3], map[uint16]uint32{80: 1, 81: 1})
			lines := d.take()
			if tc.atomic && slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "1 ") && strings.Contains(l, "+") }) {
				t.Errorf("its bundle was committed: %q", lines)
			}
			restored := slices.Index(lines, "1 add 80")
			removed := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "2 delete") })
			if restored < 0 || removed < restored {
				t.Errorf("not undone in opposite order: %q", lines)
			}
		})
	}
}

// TestSwitchLostBetweenWaves checks that a switch which disconnects during a change does not keep
// the others from being rolled back.
func TestSwitchLostBetweenWaves(t *testing.T) {
	var stop func()
	down := make(chan struct{})
	losing := sync.OnceFunc(func() {
		go stop()
		<-down
	})
	tr := newTrio(t, false, func(dpid openflow.DatapathID, m openflow.Message) *openflow.Error {
		if f, ok := m.(*openflow.FlowMod); ok && dpid == 2 && f.Match == networktest.TCPTo(2, 81, 0).Match && f.Command == openflow.FlowAdd {
			losing()
		}
		return nil
	})
	stop = tr.stops[2]
	tr.n.Subscribe(func(e network.Event) {
		if e.Kind == network.SwitchDown && e.Switch == 2 {
			close(down)
		}
	})
	networktest.Apply(t, tr.o, "k", before, network.ApplyOptions{})
	err := tr.o.Apply(t.Context(), "k", later, network.ApplyOptions{Waves: [][]openflow.DatapathID{{2, 3}, {1}}})
	if !errors.Is(err, network.ErrSwitchDown) {
		t.Fatal(err)
	}
	networktest.WantRules(t, tr.switches[1], map[uint16]uint32{80: 1})
	networktest.WantRules(t, tr.switches[3], map[uint16]uint32{80: 1, 81: 1})
	if rules := tr.o.Rules("k"); len(rules) != 3 {
		t.Errorf("the ledger holds %v", rules)
	}
	if slices.Contains(tr.d.take(), "1 modify 80") {
		t.Error("the second wave was written although the first was lost")
	}
}

// TestDeadSwitchDoesNotHoldUpDeletions checks that a dead switch whose connection is still open
// does not delay a change that only deletes on it.
func TestDeadSwitchDoesNotHoldUpDeletions(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var dead sync.Once
	tr := newTrio(t, false, func(dpid openflow.DatapathID, m openflow.Message) *openflow.Error {
		if f, ok := m.(*openflow.FlowMod); ok && dpid == 3 && f.Command == openflow.FlowDeleteStrict {
			dead.Do(func() { <-release })
		}
		return nil
	})
	defer close(release)
	networktest.Apply(t, tr.o, "k", before, network.ApplyOptions{})
	written := make(chan struct{})
	opts := network.ApplyOptions{Waves: [][]openflow.DatapathID{{2}, {1}}, Written: func() { close(written) }}
	networktest.Apply(t, tr.o, "k", later, opts) // returns although switch 3 does not answer until the test ends
	<-written
	networktest.WantRules(t, tr.switches[1], map[uint16]uint32{80: 2, 81: 2})
	networktest.WantRules(t, tr.switches[2], map[uint16]uint32{80: 1, 81: 1})
	if rules := tr.o.Rules("k"); len(rules) != 4 {
		t.Errorf("the ledger holds %v", rules)
	}
}

func TestControlLatency(t *testing.T) {
	n, _ := networktest.Start(t, network.Config{})
	networktest.Connect(t, n, fake.NewSwitch(fake.Options{DPID: 1, Ports: 1}), 1)
	s, _ := n.Switch(1)
	networktest.Eventually(t, "an echo", func() bool { return s.ControlLatency() > 0 })
}
