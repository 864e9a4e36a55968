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
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

func sosNeighbours() Experiment {
	return Experiment{
		Name:     "sos-neighbours",
		Title:    "SOS beside direct connections, and beside other SOS sessions",
		Question: "Does a direct connection keep its share when SOS fills the link, and do SOS sessions share the link fairly?",
		Varies:   []string{"size", "congestion", "beside", "share", "when"},
		Run:      runNeighbours,
	}
}

const (
	besideNothing = "nothing"
	whenBefore    = "before"
	whenWith      = "with"
	whenAfter     = "after"

	// besideHeadStart is how much earlier the other traffic begins, if it begins first.
	besideHeadStart = 2 * time.Second
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

// neighbour is other traffic beside a direct connection. Only SOS has a share, which is what its
// whitelist entry leaves to others.
type neighbour struct {
	way   string
	share agentapi.Share
}

func (n neighbour) String() string {
	if n.share == "" {
		return n.way
	}
	return fmt.Sprintf("%s (%s)", n.way, n.share)
}

// sharePorts holds the ports of the web servers to which SOS carries connections, by the share of
// their whitelist entries.
var sharePorts = map[agentapi.Share]uint16{agentapi.SharePolite: webPort, agentapi.ShareEqual: 8081, agentapi.ShareAll: 8082}

// neighbourCell is one direct connection beside other traffic that began before it, with it or
// after it.
type neighbourCell struct {
	congestion string
	megabytes  int
	beside     neighbour
	when       string
}

// alone returns the cell of the same connection beside nothing.
func (c neighbourCell) alone() neighbourCell {
	c.beside, c.when = neighbour{way: besideNothing}, ""
	return c
}

func (c neighbourCell) String() string {
	if c == c.alone() {
		return fmt.Sprintf("%d MB directly by %s, alone", c.megabytes, c.congestion)
	}
	return fmt.Sprintf("%d MB directly by %s, begun %s %v", c.megabytes, c.congestion, c.when, c.beside)
}

// ideal returns the time that the link permits a direct connection that has it alone.
func (c neighbourCell) ideal() time.Duration { return startCell{megabytes: c.megabytes}.ideal() }

// headStart returns how much earlier the direct connection begins, if it begins first. It is too
// short for the connection to have ended then.
func (c neighbourCell) headStart() time.Duration { return c.ideal() * 2 / 3 }

type neighbourPlan struct {
	megabytes  []int
	congestion []string
	beside     []string
	shares     []agentapi.Share
	when       []string
	times      int
	shareTimes int // runs of sessions that share the link
}

func planNeighbours(env *Env) (p neighbourPlan, err error) {
	text := func(s string) string { return s }
	var errs [5]error
	sizes := []int{5, 50}
	p.megabytes, errs[0] = chosenOr(env.Only, "size", sizes, pick(env.Scale, sizes[:1], sizes, sizes), strconv.Itoa)
	controls := []string{"cubic", "bbr"}
	p.congestion, errs[1] = chosenOr(env.Only, "congestion", controls, pick(env.Scale, controls[:1], controls, controls), text)
	p.beside, errs[2] = chosen(env.Only, "beside", []string{waySOS, wayProxy}, text)
	shares := []agentapi.Share{agentapi.SharePolite, agentapi.ShareEqual, agentapi.ShareAll}
	p.shares, errs[3] = chosenOr(env.Only, "share", shares, pick(env.Scale, shares[:1], shares, shares), func(s agentapi.Share) string { return string(s) })
	p.when, errs[4] = chosen(env.Only, "when", []string{whenBefore, whenWith, whenAfter}, text)
	p.times = pick(env.Scale, 3, 5, 5)
	p.shareTimes = pick(env.Scale, 1, 3, 3)
	return p, errors.Join(errs[:]...)
}

// neighbours returns the traffic beside which connections are measured.
func (p neighbourPlan) neighbours() (all []neighbour) {
	for _, way := range p.beside {
		if way != waySOS {
			all = append(all, neighbour{way: way})
			continue
		}
		for _, share := range p.shares {
			all = append(all, neighbour{way, share})
		}
	}
	return all
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
			c := neighbourCell{congestion: congestion, megabytes: size}
			all = append(all, c.alone())
			for _, c.beside = range p.neighbours() {
				for _, c.when = range p.when {
					all = append(all, c)
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
	raw, err := env.CSV("neighbours", "congestion", "megabytes", "beside", "share", "when", "seconds")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	cells := p.cells()
	env.Steps(len(cells) + 2*p.shareTimes + 1)
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
		if err := rig.serveShares(ctx, env, p.shares); err != nil {
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
				if err := raw.Row(c.congestion, c.megabytes, c.beside.way, c.beside.share, c.when, d); err != nil {
					return err
				}
			}
		}
		shared, err = rig.share(ctx, env, p.shareTimes)
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

// serveShares starts a web server for each share, to which SOS carries connections. The one of the
// polite share exists.
func (rig *startRig) serveShares(ctx context.Context, env *Env, shares []agentapi.Share) error {
	for _, share := range shares {
		port := sharePorts[share]
		if port == webPort {
			continue
		}
		if err := rig.web.serve(ctx, env, rig.site, "server", port); err != nil {
			return err
		}
		if _, err := rig.Whitelist(ctx, rig.lab.Host("server").Addr(), port, sos.Tuning{Share: string(share)}); err != nil {
			return err
		}
	}
	return nil
}

// beside measures a direct connection beside the traffic that its cell names.
func (rig *startRig) beside(ctx context.Context, c neighbourCell) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, directLimit)
	defer cancel()
	delay := map[string]time.Duration{whenBefore: c.headStart()}[c.when]
	stop := rig.background(ctx, c.beside, delay)
	if c.when == whenAfter {
		if err := tasks.Sleep(ctx, besideHeadStart); err != nil {
			return 0, errors.Join(err, stop())
		}
	}
	host := directServers[c.congestion]
	url := fmt.Sprintf("http://%v/%d", netip.AddrPortFrom(rig.lab.Host(host).Addr(), startPort), c.megabytes)
	d, err := testbed.Curl(ctx, rig.lab.Host("client"), url, filepath.Join(rig.web.root, "direct"), nil)
	return d.Total, errors.Join(err, stop())
}

// background carries files in a way, one after the other, after a delay until it is stopped.
func (rig *startRig) background(ctx context.Context, beside neighbour, delay time.Duration) (stop func() error) {
	if beside.way == besideNothing {
		return func() error { return nil }
	}
	at := rig.at(wayProxy)
	if beside.way == waySOS {
		at = netip.AddrPortFrom(rig.lab.Host("server").Addr(), sharePorts[beside.share])
	}
	url := fmt.Sprintf("http://%v/%d", at, backgroundMegabytes)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		err := tasks.Sleep(ctx, delay)
		for err == nil {
			_, err = testbed.Curl(ctx, rig.lab.Host("client"), url, filepath.Join(rig.web.root, "background"), nil)
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

// sharedLink holds the measurements of sessions that share the link, rates in bits per second.
type sharedLink struct {
	// These hold an element for each run of manySessions sessions: their rate together, and Jain's
	// index of their rates.
	together, jain []float64
	// late holds the rates of a session that began later than the others, from its second second on.
	late []float64
	// light and heavy are the rates of two sessions with different weights.
	light, heavy float64
}

// share runs ten sessions at once and nine and one that begins later, some times, then two with
// different weights.
func (rig *startRig) share(ctx context.Context, env *Env, times int) (r sharedLink, err error) {
	server := rig.lab.Host("server").Addr()
	for port, tuning := range map[uint16]sos.Tuning{iperfPort: {}, lateUserPort: {}, heavyPort: {Weight: heavyWeight}} {
		entry, err := rig.Whitelist(ctx, server, port, tuning)
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, rig.Unlist(context.WithoutCancel(ctx), entry)) }()
	}
	raw, err := env.CSV("sessions", "run", "together_bits_per_second", "jain", "late_bits_per_second")
	if err != nil {
		return r, err
	}
	defer raw.Close()
	for i := range times {
		env.Step("%d sessions at once", manySessions)
		all, err := rig.site.transfer(env.Scale, manySessions).Run(ctx)
		if err != nil {
			return r, err
		}
		env.Logf("%.1f Mbit/s together", all.Mbit())
		late, err := rig.late(ctx, env)
		if err != nil {
			return r, err
		}
		r.together, r.jain, r.late = append(r.together, all.BitsPerSecond), append(r.jain, jain(all.Streams)), append(r.late, late)
		if err := raw.Row(i+1, all.BitsPerSecond, jain(all.Streams), late); err != nil {
			return r, err
		}
	}
	r.light, r.heavy, err = rig.weights(ctx, env)
	return r, err
}

// late returns the rate of a session that begins five seconds later than others, from its second
// second on.
func (rig *startRig) late(ctx context.Context, env *Env) (float64, error) {
	env.Step("%d sessions, and one that comes later", manySessions-1)
	early := rig.site.transfer(env.Scale, manySessions-1)
	early.Omit, early.Time = 0, 14*time.Second
	done := make(chan error, 1)
	go func() { _, err := early.Run(ctx); done <- err }()
	var one testbed.Goodput
	err := tasks.Sleep(ctx, 5*time.Second)
	if err == nil {
		later := rig.site.transfer(env.Scale, 1)
		later.Port, later.Omit, later.Time = lateUserPort, time.Second, 5*time.Second
		one, err = later.Run(ctx)
		env.Logf("%.1f Mbit/s from the second second on", one.Mbit())
	}
	return one.BitsPerSecond, errors.Join(err, <-done)
}

// weights returns the rates of two sessions at once, of weight 1 and of heavyWeight.
func (rig *startRig) weights(ctx context.Context, env *Env) (light, heavy float64, err error) {
	env.Step("two sessions, of weights 1 and %d", heavyWeight)
	one := rig.site.transfer(env.Scale, 1)
	other := one
	other.Port = heavyPort
	var got testbed.Goodput
	done := make(chan error, 1)
	go func() {
		var err error
		got, err = one.Run(ctx)
		done <- err
	}()
	others, err := other.Run(ctx)
	if err := errors.Join(err, <-done); err != nil {
		return 0, 0, err
	}
	env.Logf("%.1f and %.1f Mbit/s", got.Mbit(), others.Mbit())
	return got.BitsPerSecond, others.BitsPerSecond, nil
}

// fairShare returns how near a direct connection comes to what it has alone, or with half of the
// link, whichever is less.
func fairShare(c neighbourCell, took map[neighbourCell][]float64) float64 {
	half := 2*startLine.RTT.Seconds() + float64(c.megabytes)*8e6/(startLine.Rate/2)
	return max(median(took[c.alone()]), half) / median(took[c])
}

func neighboursResult(p neighbourPlan, l line, took map[neighbourCell][]float64, shared sharedLink) *Result {
	r := &Result{Network: fmt.Sprintf("two switches, %v between them, its queue one bandwidth-delay product", l)}
	t := Table{
		Title:   fmt.Sprintf("Seconds for a file that is fetched directly (median; share of what it has alone or with half of the link, whichever is less), beside files of %d MB that are carried one after the other", backgroundMegabytes),
		Columns: []string{"congestion", "MB", "alone", "beside"},
	}
	for _, when := range p.when {
		t.Columns = append(t.Columns, "begun "+when)
	}
	for _, congestion := range p.congestion {
		for _, size := range p.megabytes {
			c := neighbourCell{congestion: congestion, megabytes: size}
			for _, c.beside = range p.neighbours() {
				row := []any{congestion, size, fmt.Sprintf("%.2f", median(took[c.alone()])), c.beside}
				for _, c.when = range p.when {
					share := fairShare(c, took)
					row = append(row, fmt.Sprintf("%.2f (%.0f %%)", median(took[c]), 100*share))
					if c.beside.share == agentapi.SharePolite {
						r.Claim(share >= 0.8, fmt.Sprintf("%v: at least 80 %% of what it has alone, or of half of the link", c), "%.0f %%", 100*share)
					}
				}
				t.Add(row...)
			}
		}
	}
	r.Tables = []Table{t}
	claimShared(r, l, shared)
	r.Note("Where the direct connection begins first, it has two thirds of the shortest time that the link permits it before the other traffic begins. Where it begins after, the other traffic has had %v. The shares equal and all yield less by design, and are only shown.", besideHeadStart)
	return r
}

// claimShared adds the claims about sessions that share the link, of the medians of their runs.
func claimShared(r *Result, l line, shared sharedLink) {
	together, fair, late := median(shared.together), median(shared.jain), median(shared.late)
	r.Claim(together >= 0.93*l.payload(), fmt.Sprintf("%d SOS sessions at once: together at least 93 %% of the link", manySessions), "%.0f %%", 100*together/l.payload())
	r.Claim(fair >= 0.95, fmt.Sprintf("%d SOS sessions at once: Jain's index at least 0.95", manySessions), "%.3f", fair)
	own := l.payload() / manySessions
	r.Claim(late >= 0.8*own, fmt.Sprintf("a session that comes to %d others has at least 80 %% of its share after a second", manySessions-1), "%.0f %%", 100*late/own)
	r.Claim(shared.heavy >= 0.8*heavyWeight*shared.light && shared.heavy <= 1.25*heavyWeight*shared.light,
		fmt.Sprintf("of two SOS sessions at once the one of weight %d carries between %.1f and %.2f times as much as the one of weight 1", heavyWeight, 0.8*heavyWeight, 1.25*heavyWeight),
		"%.1f and %.1f Mbit/s", shared.heavy/1e6, shared.light/1e6)
}
