package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/sos"
)

func sosNeighbours() Experiment {
	return Experiment{
		Name:     "sos-neighbours",
		Title:    "SOS beside direct connections, and beside other SOS sessions",
		Question: "Does a direct connection keep its share when SOS fills the link, and do SOS sessions share the link fairly?",
		Varies:   []string{"size", "congestion", "beside", "when"},
		Run:      runNeighbours,
	}
}

const (
	besideNothing = "nothing"
	whenBefore    = "before"
	whenWith      = "with"
	whenAfter     = "after"

	// headStart is how much earlier the direct connection or the other traffic begins, if they do
	// not begin together.
	headStart = 2 * time.Second
	// directLimit bounds the time of a direct connection.
	directLimit = 5 * time.Minute
	// manySessions is the number of sessions that share the link in the second part.
	manySessions = 10
	lateUserPort = 5202
	// heavyWeight is the weight of a session, in the third part, that shares the link with a
	// session of weight 1.
	heavyWeight = 3
	heavyPort   = 5203
)

// neighbourCell is one direct connection beside other traffic that began before it, with it or
// after it.
type neighbourCell struct {
	congestion   string
	megabytes    int
	beside, when string
}

func (c neighbourCell) String() string {
	if c.beside == besideNothing {
		return fmt.Sprintf("%d MB directly by %s, alone", c.megabytes, c.congestion)
	}
	return fmt.Sprintf("%d MB directly by %s, begun %s %s", c.megabytes, c.congestion, c.when, c.beside)
}

type neighbourPlan struct {
	megabytes  []int
	congestion []string
	beside     []string
	when       []string
	times      int
}

func planNeighbours(env *Env) (p neighbourPlan, err error) {
	text := func(s string) string { return s }
	var errs [4]error
	sizes := []int{5, 50}
	p.megabytes, errs[0] = chosenOr(env.Only, "size", sizes, pick(env.Scale, sizes[:1], sizes, sizes), strconv.Itoa)
	controls := []string{"cubic", "bbr"}
	p.congestion, errs[1] = chosenOr(env.Only, "congestion", controls, pick(env.Scale, controls[:1], controls, controls), text)
	p.beside, errs[2] = chosen(env.Only, "beside", []string{waySOS, wayProxy}, text)
	p.when, errs[3] = chosen(env.Only, "when", []string{whenBefore, whenWith, whenAfter}, text)
	p.times = pick(env.Scale, 3, 5, 5)
	return p, errors.Join(errs[:]...)
}

// directServers holds the servers of direct connections, by their congestion control.
var directServers = map[string]string{"cubic": "server", "bbr": "bbrserver"}

// neighbourSites returns two sites with a server of each kind.
func neighbourSites(l line) lab.Topology {
	t := addProxies(twoSites("neighbours", l, 1), l.MTU)
	h := ordinary(lab.Host{Name: directServers["bbr"]})
	h.Congestion = "bbr"
	return withHost(t, h, "s2", l.MTU)
}

// cells returns the cells of the plan, the connection alone first.
func (p neighbourPlan) cells() (all []neighbourCell) {
	for _, congestion := range p.congestion {
		for _, size := range p.megabytes {
			all = append(all, neighbourCell{congestion, size, besideNothing, ""})
			for _, beside := range p.beside {
				for _, when := range p.when {
					all = append(all, neighbourCell{congestion, size, beside, when})
				}
			}
		}
	}
	return all
}

func runNeighbours(ctx context.Context, env *Env) (*Result, error) {
	p, err := planNeighbours(env)
	if err != nil {
		return nil, err
	}
	raw, err := env.CSV("neighbours", "congestion", "megabytes", "beside", "when", "seconds")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	cells := p.cells()
	env.Steps(len(cells) + 3)
	took := map[neighbourCell][]float64{}
	l := startLine
	l.Loss = 5e-4
	var shared sharedLink
	err = env.withSite(ctx, neighbourSites(l), func(ctx context.Context, s *site) error {
		rig, err := newStartRig(ctx, env, s, append([]int{backgroundMegabytes}, p.megabytes...))
		if err != nil {
			return err
		}
		defer rig.close()
		if err := rig.web.serve(ctx, env, s, directServers["bbr"], startPort); err != nil {
			return err
		}
		for _, c := range cells {
			env.Step("%v", c)
			for range p.times {
				d, err := rig.beside(ctx, c)
				if err != nil {
					return fmt.Errorf("%v: %w", c, err)
				}
				env.Logf("%.2f s", d.Seconds())
				took[c] = append(took[c], d.Seconds())
				if err := raw.Row(c.congestion, c.megabytes, c.beside, c.when, d); err != nil {
					return err
				}
			}
		}
		shared, err = rig.share(ctx, env)
		return err
	})
	if err != nil {
		return nil, err
	}
	return neighboursResult(p, l, took, shared), nil
}

// backgroundMegabytes is the size of the files that SOS and the proxies carry again and again
// beside the direct connection.
const backgroundMegabytes = 200

// beside measures a direct connection beside the traffic that its cell names.
func (rig *startRig) beside(ctx context.Context, c neighbourCell) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, directLimit)
	defer cancel()
	delay := map[string]time.Duration{whenBefore: headStart}[c.when]
	stop := rig.background(ctx, c.beside, delay)
	if c.when == whenAfter {
		if err := tasks.Sleep(ctx, headStart); err != nil {
			return 0, errors.Join(err, stop())
		}
	}
	host := directServers[c.congestion]
	url := fmt.Sprintf("http://%v/%d", netip.AddrPortFrom(rig.lab.Host(host).Addr(), startPort), c.megabytes)
	d, err := testbed.Curl(ctx, rig.lab.Host("client"), url, filepath.Join(rig.web.root, "direct"), nil)
	return d.Total, errors.Join(err, stop())
}

// background carries files in a way, one after the other, after a delay until it is stopped.
func (rig *startRig) background(ctx context.Context, beside string, delay time.Duration) (stop func() error) {
	if beside == besideNothing {
		return func() error { return nil }
	}
	way := map[string]string{waySOS: wayKnownPath, wayProxy: wayProxy}[beside]
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		err := tasks.Sleep(ctx, delay)
		for err == nil {
			_, err = testbed.Curl(ctx, rig.lab.Host("client"), rig.url(startCell{megabytes: backgroundMegabytes, way: way}), filepath.Join(rig.web.root, "background"), nil)
		}
		if ctx.Err() != nil {
			err = nil
		}
		ended <- err
	}()
	return func() error {
		cancel()
		return <-ended
	}
}

// sharedLink holds the rates of sessions that share the link.
type sharedLink struct {
	each     []float64 // bits per second
	together float64
	late     float64 // of a session that began late, from its second second on
	// light and heavy are the rates of two sessions with different weights.
	light, heavy float64
}

// share runs ten sessions at once, then nine and one that begins later, then two with different
// weights.
func (rig *startRig) share(ctx context.Context, env *Env) (r sharedLink, err error) {
	server := rig.lab.Host("server").Addr()
	for port, tuning := range map[uint16]sos.Tuning{iperfPort: {}, lateUserPort: {}, heavyPort: {Weight: heavyWeight}} {
		entry, err := rig.Whitelist(ctx, server, port, tuning)
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, rig.Unlist(context.WithoutCancel(ctx), entry)) }()
	}
	env.Step("%d sessions at once", manySessions)
	t := rig.site.transfer(env.Scale, manySessions)
	all, err := t.Run(ctx)
	if err != nil {
		return r, err
	}
	r.each, r.together = all.Streams, all.BitsPerSecond
	env.Logf("%.1f Mbit/s together", all.Mbit())
	env.Step("%d sessions, and one that comes later", manySessions-1)
	early := t
	early.Streams, early.Omit, early.Time = manySessions-1, 0, 14*time.Second
	done := make(chan error, 1)
	go func() { _, err := early.Run(ctx); done <- err }()
	err = tasks.Sleep(ctx, 5*time.Second)
	if err == nil {
		later := t
		later.Streams, later.Port, later.Omit, later.Time = 1, lateUserPort, time.Second, 5*time.Second
		var one testbed.Goodput
		one, err = later.Run(ctx)
		r.late = one.BitsPerSecond
		env.Logf("%.1f Mbit/s from the second second on", one.Mbit())
	}
	if err := errors.Join(err, <-done); err != nil {
		return r, err
	}
	env.Step("two sessions, of weights 1 and %d", heavyWeight)
	light := rig.site.transfer(env.Scale, 1)
	heavy := light
	heavy.Port = heavyPort
	results := make(chan testbed.Goodput, 1)
	go func() { one, err := light.Run(ctx); results <- one; done <- err }()
	three, err := heavy.Run(ctx)
	one := <-results
	r.light, r.heavy = one.BitsPerSecond, three.BitsPerSecond
	env.Logf("%.1f and %.1f Mbit/s", one.Mbit(), three.Mbit())
	return r, errors.Join(err, <-done)
}

func neighboursResult(p neighbourPlan, l line, took map[neighbourCell][]float64, shared sharedLink) *Result {
	r := &Result{Network: fmt.Sprintf("two switches, %v between them, its queue one bandwidth-delay product", l)}
	t := Table{Title: "Seconds for a file that is fetched directly (median), beside files of 200 MB that are carried one after the other", Columns: []string{"congestion", "MB", "alone"}}
	for _, beside := range p.beside {
		for _, when := range p.when {
			t.Columns = append(t.Columns, fmt.Sprintf("begun %s %s", when, beside))
		}
	}
	for _, congestion := range p.congestion {
		for _, size := range p.megabytes {
			alone := median(took[neighbourCell{congestion, size, besideNothing, ""}])
			row := []any{congestion, size, fmt.Sprintf("%.2f", alone)}
			fair := 2*l.RTT.Seconds() + float64(size)*8e6/(l.Rate/2)
			for _, beside := range p.beside {
				for _, when := range p.when {
					c := neighbourCell{congestion, size, beside, when}
					took := median(took[c])
					row = append(row, fmt.Sprintf("%.2f", took))
					if beside == waySOS {
						share := max(alone, fair) / took
						r.Claim(share >= 0.8, fmt.Sprintf("%v: at least 80 %% of what it has alone, or of half of the link", c), "%.0f %%", 100*share)
					}
				}
			}
			t.Add(row...)
		}
	}
	r.Tables = []Table{t}
	r.Claim(shared.together >= 0.93*l.payload(), fmt.Sprintf("%d SOS sessions at once: together at least 93 %% of the link", manySessions), "%.0f %%", 100*shared.together/l.payload())
	r.Claim(jain(shared.each) >= 0.95, fmt.Sprintf("%d SOS sessions at once: Jain's index at least 0.95", manySessions), "%.3f", jain(shared.each))
	own := l.payload() / manySessions
	r.Claim(shared.late >= 0.8*own, fmt.Sprintf("a session that comes to %d others has at least 80 %% of its share after a second", manySessions-1), "%.0f %%", 100*shared.late/own)
	r.Claim(shared.heavy >= 0.8*heavyWeight*shared.light && shared.heavy <= 1.25*heavyWeight*shared.light,
		fmt.Sprintf("of two SOS sessions at once the one of weight %d carries between %.1f and %.2f times as much as the one of weight 1", heavyWeight, 0.8*heavyWeight, 1.25*heavyWeight),
		"%.1f and %.1f Mbit/s", shared.heavy/1e6, shared.light/1e6)
	return r
}
