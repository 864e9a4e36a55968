package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
)

// chunksRig carries chunks from one host of a lab to another.
type chunksRig struct {
	env         *Env
	lab         *lab.Lab
	mtu         int
	daemons     []*testbed.Daemon
	raw         *CSV
	rates, cost map[string][]float64
	controller  *testbed.Deployment
	// asked is the largest number of frames that have reached the controller in one measurement by
	// GUID, and unlabelled lists the measurements by GUID in which frames had no label.
	asked      float64
	unlabelled []string
}

// chunksCarrier carries chunks in one way: a program at each end, and a receiver at the second.
type chunksCarrier struct {
	way     chunksWay
	ends    [2]string // hosts of the lab
	sockets [2]string
	hosts   [2]*testbed.Daemon
	name    string // name of the receiver
}

func (g *chunksRig) stop() {
	for _, d := range g.daemons {
		d.Stop()
	}
	g.daemons = nil
}

// run starts a program on a host, which runs until stop is called.
func (g *chunksRig) run(ctx context.Context, host, log string, args ...string) (*testbed.Daemon, error) {
	d, err := testbed.StartDaemon(ctx, g.lab.Host(host), filepath.Join(g.env.Dir, log), g.env.Binary, append([]string{"mf"}, args...)...)
	if err == nil {
		g.daemons = append(g.daemons, d)
	}
	return d, err
}

// carrier starts the programs that carry chunks in one way from one host to another.
func (g *chunksRig) carrier(ctx context.Context, way chunksWay, from, to string) (*chunksCarrier, error) {
	c := &chunksCarrier{way: way, ends: [2]string{from, to}}
	service, options := "", way.options
	if way.name == byGNRS.name {
		service = g.lab.Host("c").Addr().String() + ":5001"
		if _, err := g.run(ctx, "c", "gnrs.log", "gnrs", "--listen", service, "--dir", filepath.Join(g.env.Dir, fmt.Sprintf("names-%d", g.mtu))); err != nil {
			return nil, err
		}
		options = append(options[:len(options):len(options)], "--names", service)
	}
	for i, host := range c.ends {
		id := strings.ReplaceAll(host+" "+way.name, " ", "-")
		c.sockets[i] = filepath.Join(g.env.Dir, id+".sock")
		var err error
		if c.hosts[i], err = g.run(ctx, host, "mf-"+id+".log", append([]string{"host", "--socket", c.sockets[i]}, options...)...); err != nil {
			return nil, err
		}
	}
	var err error
	if c.name, err = g.receiver(ctx, c); err != nil || service == "" {
		return c, err
	}
	return c, g.env.awaitName(ctx, g.lab.Host(from), service, c.name)
}

// awaitName waits until a name service knows a name.
func (e *Env) awaitName(ctx context.Context, from testbed.Place, service, name string) error {
	return testbed.Poll(ctx, "the name service knows a name", func() error {
		out, err := from.Command(ctx, e.Binary, "mf", "name", "show", "--names", service, name).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
}

// receiver starts a receiver at a carrier's second host once that accepts applications, and returns
// its name.
func (g *chunksRig) receiver(ctx context.Context, c *chunksCarrier) (name string, err error) {
	log := fmt.Sprintf("mf-recv-%s-%s.log", strings.ReplaceAll(c.way.name, " ", "-"), c.ends[1])
	var d *testbed.Daemon
	err = testbed.Poll(ctx, "a receiver", func() error {
		if d == nil {
			if d, err = g.run(ctx, c.ends[1], log, "recv", "--socket", c.sockets[1], "--discard", "--follow"); err != nil {
				return err
			}
		}
		select {
		case <-d.Done():
			d = nil
		default:
		}
		var ok bool
		if _, name, ok = strings.Cut(strings.TrimSpace(testbed.Tail(filepath.Join(g.env.Dir, log), 1)), "name "); !ok {
			return fmt.Errorf("no name in %s", log)
		}
		return nil
	})
	return name, err
}

// perfResult is the result of sluice mf perf.
type perfResult struct {
	Chunks        int64   `json:"chunks"`
	BitsPerSecond float64 `json:"bits_per_second"`
}

// mfPerf sends chunks of a size from a carrier's first host to a name.
func (g *chunksRig) mfPerf(ctx context.Context, c *chunksCarrier, to string, size int, more ...string) (got perfResult, err error) {
	args := append([]string{"mf", "perf", "--json", "--socket", c.sockets[0], "--chunk", strconv.Itoa(size)}, more...)
	out, err := g.lab.Host(c.ends[0]).Command(ctx, g.env.Binary, append(args, to)...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return got, fmt.Errorf("sluice mf perf to %s: %w", to, err)
	}
	if err := json.Unmarshal(out, &got); err != nil {
		return got, fmt.Errorf("sluice mf perf to %s: %q: %w", to, out, err)
	}
	return got, nil
}

// labelCounts is what the controller and the first switch have counted at one time.
type labelCounts struct {
	packetIns float64                   // frames of hosts of names that have reached the controller
	rules     map[labelledFrames]uint64 // packets of the paths' rules
}

func (g *chunksRig) labelCounts(ctx context.Context) (c labelCounts, err error) {
	m, err := g.controller.Metrics(ctx)
	if err != nil {
		return c, err
	}
	c.packetIns = m.SumOf("sluice_network_packet_ins_total", "kind", "other")
	c.rules, err = pathRules(ctx, g.lab.Switch("s1"))
	return c, err
}

// checkLabels records how many frames have reached the controller since before, and whether chunks of
// this many bytes went by labels. It waits, because switches report their counters with a delay.
func (g *chunksRig) checkLabels(ctx context.Context, what string, bytes int64, before labelCounts) error {
	now, err := g.labelCounts(ctx)
	if err != nil {
		return err
	}
	g.asked = max(g.asked, now.packetIns-before.packetIns)
	want := uint64(bytes / int64(g.mtu))
	err = testbed.Poll(ctx, "packets with labels", func() error {
		rules, err := pathRules(ctx, g.lab.Switch("s1"))
		if err != nil {
			return err
		}
		sum := uint64(0)
		for x, packets := range rules {
			if earlier := before.rules[x]; packets > earlier {
				sum += packets - earlier
			}
		}
		if sum < want {
			return fmt.Errorf("%d packets have had labels, want %d", sum, want)
		}
		return nil
	})
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		g.env.Logf("%s: %v", what, err)
		g.unlabelled = append(g.unlabelled, what)
	}
	return nil
}

// spent returns the CPU time of both hosts.
func (c *chunksCarrier) spent() (all time.Duration, err error) {
	for _, d := range c.hosts {
		t, err := testbed.CPUTime(d.PID())
		if err != nil {
			return 0, err
		}
		all += t
	}
	return all, nil
}
