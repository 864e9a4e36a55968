package experiment

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
)

// chunksWanted holds the rate in bit/s that chunks by GUID must reach if plain streams reach as
// much, by MTU and by the size of the chunks in bytes.
var chunksWanted = map[int]map[int]float64{
	1500: {1_000: 100e6, chunksCompared: 1e9, chunksLargest: 1e9},
	9000: {chunksCompared: 2e9, chunksLargest: 2e9},
}

const (
	// From chunks of chunksCompared bytes on, the rate by GNRS must be at least chunksKept times the
	// rate by GUID. chunksLargest is the size of the largest chunks.
	chunksCompared, chunksLargest, chunksKept = 1_000_000, 12_000_000, 0.95
	// chunksAsked bounds the frames that reach the controller while chunks of one size go by GUID:
	// hellos of the hosts, and requests for the path to a new sender.
	chunksAsked = 64
)

// chunksWay is a way in which hosts send chunks to a name.
type chunksWay struct {
	name string
	// options are the options of the hosts for this way.
	options []string
}

// These are the ways that are measured.
var (
	byAddress = chunksWay{"by address", []string{"--interface", "eth0"}} // for controllers that make no paths
	byGUID    = chunksWay{"by GUID", []string{"--interface", "eth0"}}
	byGNRS    = chunksWay{"by GNRS", []string{"--udp", "5028"}}
)

func mfChunks() Experiment {
	return Experiment{
		Name:     "mf-chunks",
		Title:    "Chunks to names by address, GUID and name service, by their size, beside plain TCP and UDP",
		Question: "How fast do chunks of each size go from application to application through real switches, by how their destination is found?",
		Source:   "MobilityFirst thesis 2013, figure 4.4 and table 4.2: 818 Mbit/s with chunks of 10 MB, a few hundred kbit/s with 1 kB",
		Varies:   []string{"mtu", "size"},
		Run:      runMFChunks,
	}
}

func runMFChunks(ctx context.Context, env *Env) (*Result, error) {
	number := func(v int) string { return strconv.Itoa(v) }
	mtus, err := chosenOr(env.Only, "mtu", []int{1500, 9000}, []int{1500, 9000}, number)
	if err != nil {
		return nil, err
	}
	all := []int{1_000, 10_000, 100_000, chunksCompared, chunksLargest}
	sizes, err := chosenOr(env.Only, "size", all, pick(env.Scale, []int{1_000, chunksCompared}, all, all), number)
	if err != nil {
		return nil, err
	}
	raw, err := env.CSV("chunks", "mtu", "what", "chunk_bytes", "run", "bits_per_second", "host_cpu_seconds_per_gigabyte")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	repeats := pick(env.Scale, 1, 3, 5)
	env.Steps(len(mtus) * repeats * (3*len(sizes) + 4))
	r := &Result{Network: "two hosts, a name service, and two switches with a controller between them; no link is shaped, and all of it shares this machine's processors"}
	t := Table{Title: "From application to application: means with 95 % intervals", Columns: []string{"MTU", "what", "Mbit/s", "hosts' CPU s/GB"}}
	for _, mtu := range mtus {
		rig := &chunksRig{env: env, mtu: mtu, raw: raw, rates: map[string][]float64{}, cost: map[string][]float64{}}
		err := rig.compare(ctx, "mobilityfirst: {enabled: false}\n", sizes, repeats, byAddress)
		if err == nil {
			err = rig.compare(ctx, "", sizes, repeats, byGUID, byGNRS)
		}
		if err != nil {
			return nil, fmt.Errorf("MTU %d: %w", mtu, err)
		}
		rig.report(sizes, r, &t)
	}
	r.Tables = append(r.Tables, t, chunksPublished())
	r.Note("Chunks are sent by sluice mf perf and taken by sluice mf recv, each at a host of its own; counted is what was taken until the last of them was. The first chunk, which finds the way, is not counted. TCP and UDP are iperf3's, one stream each, counted where they arrive, in frames as large as the MTU and not larger; UDP is offered twice what TCP carries.")
	r.Note("By address: the controller's service is off, hosts find each other by broadcasts, and frames go by Ethernet addresses. By GUID: the controller makes a path, and frames go by its labels. By GNRS: the hosts have no link in common that they use, the name is looked up once and its answer kept, and frames go in UDP datagrams, as large as are found to arrive. Each way has hosts of its own. In the published figure by GNRS each chunk is looked up; mf-gnrs has such chunks.")
	r.Note("CPU is that of the two programs that carry chunks (sluice mf host), user and system, as the scheduler counts it.")
	return r, nil
}

// chunksPublished returns the figures of the thesis.
func chunksPublished() Table {
	t := Table{Title: "Published: figure 4.4 as far as the text says it, and table 4.2 for one flow", Columns: []string{"chunks", "way", "Mbit/s"}}
	t.Add("1 kB", "by GUID", "a few tenths")
	for _, row := range [][2]any{{"1 MB", 493}, {"2 MB", 653}, {"4 MB", 729}, {"8 MB", 794}, {"10 MB", 818}} {
		t.Add(row[0], "by GUID", row[1])
	}
	t.Add("all", "by address", "more than by GUID")
	t.Add("all", "by GNRS, each chunk looked up", "much less than by GUID")
	t.Add("1 kB", "software router", 260)
	t.Add("1 to 12 MB", "software router", 400)
	return t
}

// compare measures the given ways, and plain TCP and UDP streams for comparison. services is the
// controller's configuration of services.
func (g *chunksRig) compare(ctx context.Context, services string, sizes []int, repeats int, ways ...chunksWay) error {
	top := lab.Topology{Name: "chunks", Switches: []lab.Switch{{Name: "s1"}, {Name: "s2"}}, Hosts: []lab.Host{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
	for _, ends := range [][2]string{{"a", "s1"}, {"s1", "s2"}, {"b", "s2"}, {"c", "s1"}} {
		l := lab.Both(ends[0], ends[1], delayline.Params{})
		l.MTU = g.mtu
		top.Links = append(top.Links, l)
	}
	return g.env.withLab(ctx, top, func(ctx context.Context, l *lab.Lab) (err error) {
		d, err := testbed.Deploy(ctx, testbed.Options{Lab: l, Binary: g.env.Binary, LogDir: g.env.Dir, Services: services})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		g.lab, g.controller = l, d
		defer g.stop()
		var carriers []*chunksCarrier
		for _, way := range ways {
			c, err := g.carrier(ctx, way, "a", "b")
			if err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
			carriers = append(carriers, c)
		}
		for run := range repeats {
			if err := g.measure(ctx, run+1, sizes, carriers); err != nil {
				return err
			}
		}
		return nil
	})
}

// measure measures plain TCP and UDP, and each way with each size, once.
func (g *chunksRig) measure(ctx context.Context, run int, sizes []int, carriers []*chunksCarrier) error {
	during := pick(g.env.Scale, 2*time.Second, 5*time.Second, 10*time.Second)
	tcp, err := g.plain(ctx, run, "TCP", "", during)
	if err != nil {
		return err
	}
	if _, err := g.plain(ctx, run, "UDP", strconv.FormatInt(int64(2*tcp), 10), during); err != nil {
		return err
	}
	for _, size := range sizes {
		for _, c := range carriers {
			if err := g.perf(ctx, run, c, size, during); err != nil {
				return err
			}
		}
	}
	return nil
}

// plain measures a stream of iperf3.
func (g *chunksRig) plain(ctx context.Context, run int, what, rate string, during time.Duration) (float64, error) {
	g.env.Step("MTU %d: %s", g.mtu, what)
	got, err := testbed.Transfer{
		Client: g.lab.Host("a"), Server: g.lab.Host("b"), To: g.lab.Host("b").Addr().String(), Port: iperfPort, Time: during, Omit: time.Second, UDPRate: rate,
	}.Run(ctx)
	if err != nil {
		return 0, err
	}
	g.rates[what] = append(g.rates[what], got.BitsPerSecond)
	return got.BitsPerSecond, g.raw.Row(g.mtu, what, 0, run, got.BitsPerSecond, 0)
}

// chunksOf returns the name of a measurement of chunks of a size in one way.
func chunksOf(size int, way chunksWay) string {
	return "chunks of " + units.FormatSize(int64(size)) + " " + way.name
}

// perf measures chunks of a size.
func (g *chunksRig) perf(ctx context.Context, run int, c *chunksCarrier, size int, during time.Duration) error {
	what := chunksOf(size, c.way)
	g.env.Step("MTU %d: %s", g.mtu, what)
	before, err := c.spent()
	if err != nil {
		return err
	}
	counted, err := g.labelCounts(ctx)
	if err != nil {
		return err
	}
	got, err := g.mfPerf(ctx, c, c.name, size, "--time", during.String())
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	after, err := c.spent()
	if err != nil {
		return err
	}
	if c.way.name == byGUID.name {
		if err := g.checkLabels(ctx, what, got.Chunks*int64(size), counted); err != nil {
			return err
		}
	}
	cost := (after - before).Seconds() / (float64(got.Chunks) * float64(size) / 1e9)
	g.rates[what], g.cost[what] = append(g.rates[what], got.BitsPerSecond), append(g.cost[what], cost)
	return g.raw.Row(g.mtu, c.way.name, size, run, got.BitsPerSecond, cost)
}

// report adds the table and the claims.
func (g *chunksRig) report(sizes []int, r *Result, t *Table) {
	r.Claim(g.asked <= chunksAsked && len(g.unlabelled) == 0, fmt.Sprintf("MTU %d: chunks by GUID go by labels, and at most %d frames reach the controller meanwhile, however many chunks go", g.mtu, chunksAsked), "%.0f frames; without labels: %q", g.asked, g.unlabelled)
	plain := 0.0
	for _, what := range []string{"TCP", "UDP"} {
		plain = max(plain, mean(g.rates[what]))
		t.Add(g.mtu, what, meanText(g.rates[what], 1e-6, 0), "")
	}
	for _, size := range sizes {
		for _, way := range []chunksWay{byAddress, byGUID, byGNRS} {
			what := chunksOf(size, way)
			t.Add(g.mtu, what, meanText(g.rates[what], 1e-6, 0), meanText(g.cost[what], 1, 1))
		}
		guid, gnrs := mean(g.rates[chunksOf(size, byGUID)]), mean(g.rates[chunksOf(size, byGNRS)])
		if wanted := chunksWanted[g.mtu][size]; wanted > 0 {
			r.Claim(guid >= min(wanted, plain), fmt.Sprintf("MTU %d, %s: at least %.0f Mbit/s, or what a plain stream reaches", g.mtu, chunksOf(size, byGUID), wanted/1e6), "%.0f Mbit/s; plain: %.0f", guid/1e6, plain/1e6)
		}
		if size >= chunksCompared {
			r.Claim(gnrs >= chunksKept*guid, fmt.Sprintf("MTU %d, %s with the answer kept: at least %.3g of by GUID", g.mtu, chunksOf(size, byGNRS), chunksKept), "%.2f: %.0f of %.0f Mbit/s", gnrs/guid, gnrs/1e6, guid/1e6)
		}
	}
}
