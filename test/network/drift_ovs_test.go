package network_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/openflow"
)

// driftLab is a line of three switches. An owner has a rule with a group and a meter in the middle.
type driftLab struct {
	l *lab.Lab
	n *network.Network
	o *network.Owner

	mu     sync.Mutex
	events []network.Event
}

func newDriftLab(t *testing.T, name string, interval time.Duration) *driftLab {
	t.Helper()
	d := &driftLab{l: lab.New(t, lab.Line(name, 3, delayline.Params{}))}
	d.n, _ = run(t, d.l, network.Config{CompareInterval: interval}, func(n *network.Network) {
		d.o = networktest.Owner(t, n, "svc", network.OwnerOptions{})
		n.Subscribe(func(e network.Event) {
			if e.Kind == network.SwitchDrifted {
				d.mu.Lock()
				d.events = append(d.events, e)
				d.mu.Unlock()
			}
		})
	})
	d.o.Ready()
	ready(t, d.n, 3, 2, 3)
	r := networktest.TCPTo(2, 4242, 1)
	r.Meter, r.Actions = 3, []openflow.Action{openflow.GroupAction(d.o.GroupID(7))}
	bucket := func(out uint32) openflow.Bucket {
		return openflow.NewBucket(openflow.SetField(openflow.EthDst(openflow.MAC{2, 0, 0, 0, 0, 9})), openflow.Output(out))
	}
	networktest.Apply(t, d.o, "k", network.Program{
		Rules:  []network.Rule{r},
		Groups: []network.Group{{Switch: 2, ID: d.o.GroupID(7), Type: openflow.GroupTypeAll, Buckets: []openflow.Bucket{bucket(1), bucket(2)}}},
		Meters: []network.Meter{{Switch: 2, ID: 3, Flags: openflow.MeterFlagKbps | openflow.MeterFlagBurst, Bands: []openflow.MeterBand{{Type: openflow.BandDrop, Rate: 1000, Burst: 100}}}},
	}, network.ApplyOptions{})
	ping(t, d.l, "h1", "h3")
	return d
}

// ofctl runs ovs-ofctl on the middle switch.
func (d *driftLab) ofctl(t *testing.T, command ...string) string {
	t.Helper()
	out, err := d.l.Switch("s2").Ofctl(t.Context(), command[0], command[1:]...)
	if err != nil {
		t.Fatalf("ovs-ofctl %v: %v\n%s", command, err, out)
	}
	return out
}

// tables lists the middle switch's lasting rules, its groups and meters, without counters.
func (d *driftLab) tables(t *testing.T) string {
	t.Helper()
	var out []string
	for line := range strings.Lines(d.ofctl(t, "dump-flows", "--no-stats")) {
		if !strings.Contains(line, "idle_timeout") && !strings.Contains(line, "hard_timeout") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	slices.Sort(out)
	_, groups, _ := strings.Cut(d.ofctl(t, "dump-groups"), "\n")
	_, meters, _ := strings.Cut(d.ofctl(t, "dump-meters"), "\n")
	return strings.Join(out, "\n") + "\n" + groups + meters
}

// repaired waits until the tables are as before, and traffic passes the middle switch.
func (d *driftLab) repaired(t *testing.T, before string) {
	t.Helper()
	networktest.Eventually(t, "the middle switch to be as before", func() bool { return d.tables(t) == before })
	networktest.Eventually(t, "traffic through the middle switch", func() bool {
		addr := d.l.Host("h3").Addr().String()
		return d.l.Host("h1").Command(t.Context(), "ping", "-n", "-c", "1", "-W", "2", addr).Run() == nil
	})
}

// told waits for an event about the middle switch, and checks that it names the owner and kind.
func (d *driftLab) told(t *testing.T, owner, object string) {
	t.Helper()
	networktest.Eventually(t, "an event about "+owner+"'s "+object, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return slices.ContainsFunc(d.events, func(e network.Event) bool {
			return e.Switch == 2 && e.Reason == "" && slices.ContainsFunc(e.Drift, func(v network.Deviation) bool {
				return v.Owner == owner && string(v.Object) == object
			})
		})
	})
}

// TestDeletedRulesComeBackOnOpenVSwitch deletes all rules, and then all groups, of the switch in the
// middle. The switch's notices alone must bring them back.
func TestDeletedRulesComeBackOnOpenVSwitch(t *testing.T) {
	t.Parallel()
	d := newDriftLab(t, "netdrift", -1)
	before := d.tables(t)
	d.ofctl(t, "del-flows")
	d.repaired(t, before)
	d.told(t, "network", "rule")
	d.told(t, "svc", "rule")
	d.ofctl(t, "del-groups")
	d.repaired(t, before)
	d.told(t, "svc", "group")
}

// TestComparisonRepairsOpenVSwitch changes the switch in the middle in ways that it reports to
// nobody, and checks that comparisons find no deviation as long as nobody does.
func TestComparisonRepairsOpenVSwitch(t *testing.T) {
	t.Parallel()
	d := newDriftLab(t, "netcompare", 500*time.Millisecond)
	sw, ok := d.n.Switch(2)
	if !ok {
		t.Fatal("the middle switch has left")
	}
	compared := sw.Stats().Drift.Comparisons
	networktest.Eventually(t, "comparisons", func() bool { return sw.Stats().Drift.Comparisons >= compared+3 })
	if got := sw.Stats().Drift; got.Total() != 0 {
		t.Fatalf("nobody has changed the switch, and %+v is counted", got.Deviations)
	}
	before := d.tables(t)
	d.ofctl(t, "mod-flows", "actions=drop")
	d.repaired(t, before)
	d.told(t, "network", "rule")
	d.ofctl(t, "del-meters")
	d.repaired(t, before)
	d.told(t, "svc", "meter")
	d.ofctl(t, "del-groups")
	d.repaired(t, before)
	d.told(t, "svc", "group")
}
