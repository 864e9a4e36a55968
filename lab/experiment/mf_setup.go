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
		rig := &setupRig{env: env, lab: l, raw: raw, requests: pick(env.Scale, 1000, 10_000, 10_000)}
		closeAll, err := rig.open(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeAll()) }()
		env.Steps(12)
		if err := rig.reflect(ctx); err != nil {
			return fmt.Errorf("a controller that only answers: %w", err)
		}
		const services = "mobilityfirst: {max_paths: 100000}\n"
		d, err := testbed.Deploy(ctx, testbed.Options{Lab: l, Binary: env.Binary, LogDir: env.Dir, Services: services})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		rig.deployment, rig.controller = d, d.Controller()
		if err := rig.awaitLink(ctx); err != nil {
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
	env          *Env
	lab          *lab.Lab
	deployment   *testbed.Deployment
	controller   *testbed.Daemon
	raw          *CSV
	requests     int // of each kind
	asks         []*rawlink.Socket
	answers      *rawlink.Socket
	there        openflow.MAC
	sources      []ed25519.PrivateKey // setupSources of each host
	answerers    []ed25519.PrivateKey
	destinations []frame.GUID // the names of answerers
	sending      sync.Mutex   // guards sending on any socket
	silent       atomic.Bool  // no hello is sent
	reflected    atomic.Bool  // the controller leaves the choice of labels to the host that answers
	id           uint64
	label        uint16 // label of the path that was requested last
	trips, costs Table
}

var everybody = openflow.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// open opens the hosts' sockets, and answers requests until the returned function is called, which
// closes the sockets.
func (g *setupRig) open(ctx context.Context) (closeAll func() error, err error) {
	var sockets []*rawlink.Socket
	closeSockets := func() (err error) {
		for _, s := range sockets {
			err = errors.Join(err, s.Close())
		}
		return err
	}
	open := func(name string) (*rawlink.Socket, error) {
		err := g.lab.Host(name).Do(func() error {
			i, err := net.InterfaceByName("eth0")
			if err != nil {
				return err
			}
			s, err := rawlink.Open(i)
			if err == nil {
				sockets = append(sockets, s)
			}
			return err
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("host %s: %w", name, err), closeSockets())
		}
		return sockets[len(sockets)-1], nil
	}
	if g.answers, err = open("b"); err != nil {
		return nil, err
	}
	for i := range setupHosts {
		s, err := open(fmt.Sprint("a", i))
		if err != nil {
			return nil, err
		}
		g.asks = append(g.asks, s)
	}
	g.there = g.answers.MAC
	if err := g.makeNames(); err != nil {
		return nil, errors.Join(err, closeSockets())
	}
	g.trips = Table{Title: "Round trips", Columns: []string{"what", "times", "ms: " + meanColumn, "median ms", "p95 ms", "p99 ms"}}
	g.costs = Table{Title: "The controller's CPU for a request", Columns: []string{"controller", "path", "at one time", "requests", "us"}}
	answering, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- g.answer(answering) }()
	return func() error {
		stop()
		return errors.Join(<-ended, closeSockets())
	}, nil
}

// awaitLink waits until the controller knows the link between the switches.
func (g *setupRig) awaitLink(ctx context.Context) error {
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
	g.env.Step("hellos")
	names := map[*rawlink.Socket][]ed25519.PrivateKey{g.answers: g.answerers}
	for i, s := range g.asks {
		names[s] = g.sources[i*setupSources:][:setupSources]
	}
	if err := g.announceNames(ctx, names); err != nil {
		return err
	}
	announcing, stop := context.WithCancel(ctx)
	greeted := make(chan error, 1)
	go func() { greeted <- g.keepAnnouncing(announcing, names) }()
	defer func() { stop(); err = errors.Join(err, <-greeted) }()
	bounded := func(what string, most time.Duration, one func(ctx context.Context, i int) error) error { // most is the bound of the median
		median, err := g.measure(ctx, what, one)
		if err == nil {
			r.Claim(median <= most, fmt.Sprintf("%s: median at most %v", what, most), "%.3f ms", median.Seconds()*1e3)
		}
		return err
	}
	cpu, err := g.costAbove(ctx, g.requests, func() error {
		return bounded("path to be made", setupUnknown, func(ctx context.Context, i int) error { source, to := g.pair(i); return g.request(ctx, source, to) })
	})
	if err != nil {
		return err
	}
	g.costs.Add("Sluice", "made", 1, g.requests, fmt.Sprintf("%.1f", cpu.Seconds()*1e6))
	g.silent.Store(true)               // so that no hello is counted
	cpu, err = g.bursts(ctx, "Sluice") // now, while the leases of all paths are valid
	if err != nil {
		return err
	}
	r.Claim(cpu <= setupCPU, fmt.Sprintf("at most %v of the controller's CPU for a request, %d at one time", setupCPU, setupHosts*setupBurst), "%.1f us", cpu.Seconds()*1e6)
	g.silent.Store(false)
	if _, err := g.measure(ctx, "path asked for again", g.again); err != nil {
		return err
	}
	if err := bounded("path that is there", setupKnown, g.byLabel); err != nil {
		return err
	}
	_, err = g.measureTrips("ping, by the same switches", func(string) ([]float64, error) {
		return testbed.Pings(ctx, g.lab.Host("a0"), g.lab.Host("b").Addr(), g.requests)
	})
	if err != nil {
		return err
	}
	before := Table{Title: "Published: table 4.1", Columns: []string{"", "round trip ms", "controller us"}}
	before.Add("with flow set-up", 3.5, 114)
	before.Add("without", 0.46, 32)
	r.Tables = append(r.Tables, g.trips, g.costs, before)
	r.Note("A round trip is from the first frame until its answer is there, at a raw socket of the host that asks, at most one every %v. That of a path that is to be made, or asked for again, is up to the controller, to the host of the name, and back by the label. By a path that is there, as each chunk goes that has one, the frame and its answer go by their labels.", setupEvery)
	r.Note("Hosts here neither look at signatures nor sign answers, which takes sluice mf host some 0.2 ms; the controller looks at those of hellos, before it is measured. %d names ask, of %d hosts, for %d of another: max_paths is set so that there may be so many paths.", len(g.sources), setupHosts, len(g.destinations))
	r.Note("CPU is the process's while requests come, less what it takes in the same time without them. Requests for paths to be made come one at a time, and the rules are included. Those for paths that exist come %d at one time from one host or from each of %d, every %v; no host says hello meanwhile. Fewer at one time cost more each: threads have to wake.", setupBurst, setupHosts, setupBurstEvery)
	r.Note("The reflector is a Go program that answers each packet-in at once with a packet-out and looks at nothing (sluice-lab reflector). Its figures are what the switches, the control connections and Go take by themselves, and the rest of Sluice's is Sluice's own. A ping is what a path that is there takes without a host's program: its echo is answered in the kernel. The frame by a label through switches with no other rules has no controller to wait for, either: Sluice cannot be faster.")
	return nil
}

// measure makes a request, or sends a frame, as often as g.requests says, and returns the median of
// the round trips.
func (g *setupRig) measure(ctx context.Context, what string, one func(ctx context.Context, i int) error) (time.Duration, error) {
	return g.measureTrips(what, func(what string) ([]float64, error) { return g.times(ctx, what, g.requests, one) })
}

// measureTrips adds round trips to the table, and returns their median.
func (g *setupRig) measureTrips(what string, measure func(what string) ([]float64, error)) (time.Duration, error) {
	g.env.Step("%s, %d times", what, g.requests)
	took, err := measure(what)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	ms := func(q float64) string { return fmt.Sprintf("%.3f", quantile(took, q)*1e3) }
	g.trips.Add(what, g.requests, meanText(took, 1e3, 3), ms(0.5), ms(0.95), ms(0.99))
	return time.Duration(quantile(took, 0.5) * float64(time.Second)), nil
}

// again requests a path that exists.
func (g *setupRig) again(ctx context.Context, _ int) error {
	return g.request(ctx, 0, g.destinations[0])
}

// bursts measures the controller's CPU time for requests for paths that exist, and returns that of
// the largest bursts.
func (g *setupRig) bursts(ctx context.Context, controller string) (cpu time.Duration, err error) {
	for _, hosts := range []int{1, setupHosts} {
		g.env.Step("%s: %d requests, %d at one time", controller, g.requests, hosts*setupBurst)
		if cpu, err = g.cost(ctx, hosts, g.requests); err != nil {
			return 0, err
		}
		g.costs.Add(controller, "exists", hosts*setupBurst, g.requests, fmt.Sprintf("%.1f", cpu.Seconds()*1e6))
	}
	return cpu, nil
}

// cost returns the controller's CPU time for a request for a path that exists, if the given number
// of hosts send requests at one time.
func (g *setupRig) cost(ctx context.Context, hosts, requests int) (time.Duration, error) {
	bursts := requests / (hosts * setupBurst)
	idle, err := g.spend(func() error { return tasks.Sleep(ctx, time.Duration(bursts)*setupBurstEvery) })
	if err != nil {
		return 0, err
	}
	spent, err := g.spend(func() error {
		for burst := range bursts {
			began := time.Now()
			if err := g.burst(ctx, burst, hosts); err != nil {
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
func (g *setupRig) burst(ctx context.Context, burst, hosts int) error {
	first := make([]uint64, setupHosts) // number of the first request of each host
	for n := range hosts {
		host := (burst*hosts + n) % setupHosts
		first[host] = g.id + 1
		var frames [][]byte
		for i := range setupBurst {
			_, to := g.pair((burst*hosts+n)*setupBurst + i)
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
