package experiment

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/rawlink"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

const (
	// setupUnknown and setupKnown bound the round trip of the first frame if a path must be made
	// and if it exists. setupCPU bounds the controller's CPU time for a request for a path that
	// exists.
	setupUnknown, setupKnown, setupCPU = time.Millisecond, 200 * time.Microsecond, 5 * time.Microsecond
	// setupBurst is the number of requests that a host sends at one time, every setupBurstEvery, to
	// measure their cost.
	setupBurst, setupBurstEvery = 64, 40 * time.Millisecond
	// setupEvery is the smallest time between two requests: half of the rate that a port is
	// allowed.
	setupEvery = time.Millisecond
	// setupHosts is the number of hosts that send requests, each with setupSources names. Between
	// two hosts alone there would be fewer labels than are requested.
	setupHosts, setupSources = 5, 40
	// setupLeft bounds how long after the last request rules of paths may exist: until their leases
	// have expired and the service has checked them.
	setupLeft = 2 * time.Minute
	// setupTimeout bounds the time of an answer.
	setupTimeout = 2 * time.Second
)

func mfSetup() Experiment {
	return Experiment{
		Name:     "mf-setup",
		Title:    "A path between two names: how long the first frame waits for it",
		Question: "How long does a request for a path take if the path must be made and if it exists, and what does it cost the controller?",
		Source:   "MobilityFirst thesis 2013, table 4.1: 3.5 and 0.46 ms; 114 and 32 us at the controller",
		Run:      runMFSetup,
	}
}

func runMFSetup(ctx context.Context, env *Env) (*Result, error) {
	top := lab.Topology{Name: "mfsetup", Switches: []lab.Switch{{Name: "s1"}, {Name: "s2"}}, Hosts: []lab.Host{{Name: "b"}}}
	join := func(a, b string) { top.Links = append(top.Links, lab.Both(a, b, delayline.Params{})) }
	join("s1", "s2")
	join("b", "s2")
	for i := range setupHosts {
		name := fmt.Sprint("a", i)
		top.Hosts = append(top.Hosts, lab.Host{Name: name})
		join(name, "s1")
	}
	raw, err := env.CSV("setup", "what", "request", "seconds")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	r := &Result{Network: "six hosts and two switches with a controller; no link is shaped, and all of it shares this machine's processors"}
	err = env.withLab(ctx, top, func(ctx context.Context, l *lab.Lab) (err error) {
		const services = "mobilityfirst: {max_paths: 100000}\n"
		d, err := testbed.Deploy(ctx, testbed.Options{Lab: l, Binary: env.Binary, LogDir: env.Dir, Services: services})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		rig := &setupRig{env: env, lab: l, deployment: d, raw: raw}
		if err := rig.open(ctx, l); err != nil {
			return err
		}
		if err := rig.run(ctx, r); err != nil {
			return err
		}
		return rig.leave(ctx, r)
	})
	return r, err
}

// setupRig has several hosts that request paths, and one that answers. None of them verifies
// signatures.
type setupRig struct {
	env        *Env
	lab        *lab.Lab
	deployment *testbed.Deployment
	raw        *CSV
	asks       []*rawlink.Socket
	answers    *rawlink.Socket
	there      openflow.MAC
	sources    []ed25519.PrivateKey // setupSources of each host
	sending    sync.Mutex           // guards sending on any socket
	silent     atomic.Bool          // no hello is sent
	id         uint64
	label      uint16 // label of the path that was requested last
}

var everybody = openflow.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

func (g *setupRig) open(ctx context.Context, l *lab.Lab) error {
	open := func(name string) (s *rawlink.Socket, err error) {
		err = l.Host(name).Do(func() error {
			i, err := net.InterfaceByName("eth0")
			if err == nil {
				s, err = rawlink.Open(i)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("host %s: %w", name, err)
		}
		return s, nil
	}
	var err error
	if g.answers, err = open("b"); err != nil {
		return err
	}
	for i := range setupHosts {
		s, err := open(fmt.Sprint("a", i))
		if err != nil {
			return err
		}
		g.asks = append(g.asks, s)
	}
	g.there = g.answers.MAC
	return testbed.Poll(ctx, "the link", func() error {
		n, err := g.deployment.Links(ctx)
		if err == nil && n < 2 {
			err = fmt.Errorf("%d directions are known", n)
		}
		return err
	})
}

// say sends frames from a host.
func (g *setupRig) say(s *rawlink.Socket, frames ...[]byte) error {
	g.sending.Lock()
	defer g.sending.Unlock()
	return s.Send(frames)
}

// hello sends a hello for a name from a host.
func (g *setupRig) hello(s *rawlink.Socket, key ed25519.PrivateKey) error {
	h := record.SignHello(key, uint64(time.Now().UnixNano()), s.MAC, 0)
	return g.say(s, h.AppendTo(s.AppendHeader(nil, everybody, 0)))
}

func (g *setupRig) run(ctx context.Context, r *Result) (err error) {
	requests := pick(g.env.Scale, 1000, 10_000, 10_000)
	answering, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- g.answer(answering) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended, g.answers.Close())
		for _, s := range g.asks {
			err = errors.Join(err, s.Close())
		}
	}()

	g.env.Steps(8)
	g.env.Step("hellos")
	answerers, err := newNames(requests/(setupHosts*setupSources) + 1)
	if err != nil {
		return err
	}
	if g.sources, err = newNames(setupHosts * setupSources); err != nil {
		return err
	}
	names := map[*rawlink.Socket][]ed25519.PrivateKey{g.answers: answerers}
	for i, s := range g.asks {
		names[s] = g.sources[i*setupSources:][:setupSources]
	}
	if err := g.announceNames(ctx, names); err != nil {
		return err
	}
	greeted := make(chan error, 1)
	go func() { greeted <- g.keepAnnouncing(answering, names) }()
	defer func() { stop(); err = errors.Join(err, <-greeted) }()
	destinations := make([]frame.GUID, len(answerers))
	for i, key := range answerers {
		destinations[i] = record.NameOfOwner(key)
	}
	t := Table{Title: "Round trips", Columns: []string{"what", "times", "ms: " + meanColumn, "median ms", "p95 ms", "p99 ms"}}
	made := func(i int) (source int, to frame.GUID) {
		return i % len(g.sources), destinations[i/len(g.sources)]
	}
	trips := func(what string, most time.Duration, measure func() ([]float64, error)) error { // most is the bound; zero means none
		g.env.Step("%s, %d times", what, requests)
		took, err := measure()
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		ms := func(q float64) string { return fmt.Sprintf("%.3f", quantile(took, q)*1e3) }
		t.Add(what, requests, meanText(took, 1e3, 3), ms(0.5), ms(0.95), ms(0.99))
		if most > 0 {
			r.Claim(quantile(took, 0.5) <= most.Seconds(), fmt.Sprintf("%s: median at most %v", what, most), "%s ms", ms(0.5))
		}
		return nil
	}
	frames := func(what string, most time.Duration, one func(ctx context.Context, i int) error) error {
		return trips(what, most, func() ([]float64, error) { return g.times(ctx, what, requests, one) })
	}
	costs := Table{Title: "The controller's CPU for a request", Columns: []string{"path", "at one time", "requests", "us"}}
	cpu, err := g.costAbove(ctx, requests, func() error {
		return frames("path to be made", setupUnknown, func(ctx context.Context, i int) error { source, to := made(i); return g.request(ctx, source, to) })
	})
	if err != nil {
		return err
	}
	costs.Add("made", 1, requests, fmt.Sprintf("%.1f", cpu.Seconds()*1e6))
	g.silent.Store(true)                         // so that no hello is counted
	for _, hosts := range []int{1, setupHosts} { // now, while the leases of all paths are valid
		g.env.Step("%d requests, %d at one time", requests, hosts*setupBurst)
		cpu, err := g.cost(ctx, hosts, requests, made)
		if err != nil {
			return err
		}
		costs.Add("exists", hosts*setupBurst, requests, fmt.Sprintf("%.1f", cpu.Seconds()*1e6))
		if hosts == setupHosts {
			r.Claim(cpu <= setupCPU, fmt.Sprintf("at most %v of the controller's CPU for a request, %d at one time", setupCPU, hosts*setupBurst), "%.1f us", cpu.Seconds()*1e6)
		}
	}
	g.silent.Store(false)
	if err := frames("path asked for again", 0, func(ctx context.Context, _ int) error { return g.request(ctx, 0, destinations[0]) }); err != nil {
		return err
	}
	if err := frames("path that is there", setupKnown, g.byLabel); err != nil {
		return err
	}
	err = trips("ping, by the same switches", 0, func() ([]float64, error) {
		return testbed.Pings(ctx, g.lab.Host("a0"), g.lab.Host("b").Addr(), requests)
	})
	if err != nil {
		return err
	}
	before := Table{Title: "Published: table 4.1", Columns: []string{"", "round trip ms", "controller us"}}
	before.Add("with flow set-up", 3.5, 114)
	before.Add("without", 0.46, 32)
	r.Tables = append(r.Tables, t, costs, before)
	r.Note("A round trip is from the first frame until its answer is there, at a raw socket of the host that asks, at most one every %v. That of a path that is to be made, or asked for again, is up to the controller, to the host of the name, and back by the label. By a path that is there, as each chunk goes that has one, the frame and its answer go by their labels.", setupEvery)
	r.Note("Hosts here neither look at signatures nor sign answers, which takes sluice mf host some 0.2 ms; the controller looks at those of hellos, before it is measured. %d names ask, of %d hosts, for %d of another: max_paths is set so that there may be so many paths.", len(g.sources), setupHosts, len(destinations))
	r.Note("CPU is the process's while requests come, less what it takes in the same time without them. Requests for paths to be made come one at a time, and the rules are included. Those for paths that exist come %d at one time from one host or from each of %d, every %v; no host says hello meanwhile. Fewer at one time cost more each: threads have to wake.", setupBurst, setupHosts, setupBurstEvery)
	return nil
}

// cost returns the controller's CPU time for a request for a path that exists, if the given number
// of hosts send requests at one time.
func (g *setupRig) cost(ctx context.Context, hosts, requests int, of func(i int) (source int, to frame.GUID)) (time.Duration, error) {
	bursts := requests / (hosts * setupBurst)
	idle, err := g.spend(func() error { return tasks.Sleep(ctx, time.Duration(bursts)*setupBurstEvery) })
	if err != nil {
		return 0, err
	}
	spent, err := g.spend(func() error {
		for burst := range bursts {
			began := time.Now()
			if err := g.burst(ctx, burst, hosts, of); err != nil {
				return fmt.Errorf("burst %d: %w", burst+1, err)
			}
			if err := tasks.Sleep(ctx, setupBurstEvery-time.Since(began)); err != nil {
				return err
			}
		}
		return nil
	})
	return (spent - idle) / time.Duration(bursts*hosts*setupBurst), err
}

// costAbove returns the controller's CPU time for each of a number of requests, which do makes, above
// what it uses without requests. Hellos continue meanwhile, and are counted in both.
func (g *setupRig) costAbove(ctx context.Context, requests int, do func() error) (time.Duration, error) {
	quiet := time.Duration(requests) * setupEvery
	idle, err := g.spend(func() error { return tasks.Sleep(ctx, quiet) })
	if err != nil {
		return 0, err
	}
	began := time.Now()
	spent, err := g.spend(do)
	return (spent - time.Duration(float64(idle)*float64(time.Since(began))/float64(quiet))) / time.Duration(requests), err
}

// burst sends requests from several hosts at one time, and waits for the answers.
func (g *setupRig) burst(ctx context.Context, burst, hosts int, of func(i int) (source int, to frame.GUID)) error {
	first := make([]uint64, setupHosts) // number of the first request of each host
	for n := range hosts {
		host := (burst*hosts + n) % setupHosts
		first[host] = g.id + 1
		var frames [][]byte
		for i := range setupBurst {
			_, to := of((burst*hosts+n)*setupBurst + i)
			frames = append(frames, g.frame(host*setupSources+i%setupSources, to))
		}
		if err := g.say(g.asks[host], frames...); err != nil {
			return err
		}
	}
	for host, id := range first {
		if id > 0 {
			if err := g.await(ctx, host, id, setupBurst); err != nil {
				return err
			}
		}
	}
	return nil
}

// leave waits until the leases of all paths have expired, after which none of their rules may be
// left.
func (g *setupRig) leave(ctx context.Context, r *Result) error {
	most, err := countPathRules(ctx, g.lab)
	if err != nil {
		return err
	}
	g.env.Step("the leases of %d rules end", most)
	began, left := time.Now(), most
	for left > 0 && time.Since(began) < setupLeft {
		if err := tasks.Sleep(ctx, time.Second); err != nil {
			return err
		}
		if left, err = countPathRules(ctx, g.lab); err != nil {
			return err
		}
	}
	r.Claim(most > 0 && left == 0, fmt.Sprintf("no rule of a path is left %v after it was asked for last", setupLeft), "%d of %d, after %v", left, most, time.Since(began).Round(time.Second))
	return nil
}
