package experiment

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/sluice-net/sluice/experiment/stage"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/mobilityfirst/frame"
	"github.com/sluice-net/sluice/mobilityfirst/plugin"
	"github.com/sluice-net/sluice/mobilityfirst/rawlink"
	"github.com/sluice-net/sluice/mobilityfirst/record"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// What is held to: round trips of the first frame where a path has to be made and where it is there, and the
	// controller's CPU for a request for one that is there.
	setupUnknown, setupKnown, setupCPU = time.Millisecond, 200 * time.Microsecond, 5 * time.Microsecond
	// setupBurst are the requests that are sent at one time to see what they cost, every setupBurstEvery.
	setupBurst, setupBurstEvery = 64, 40 * time.Millisecond
	// setupEvery is how far requests are apart at least: half of what a port may ask.
	setupEvery = time.Millisecond
	// setupHosts are the hosts that ask, each with setupSources names: between two hosts there are fewer labels than
	// are asked for.
	setupHosts, setupSources = 5, 40
	// setupPatience is how long an answer may take.
	setupPatience = 2 * time.Second
)

func mfSetup() Experiment {
	return Experiment{
		Name:     "mf-setup",
		Title:    "A path between two names: how long the first frame waits for it",
		Question: "How long does a request for a path take, when it has to be made and when it is there, and what does that cost the controller?",
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
		d, err := stage.Deploy(ctx, stage.Options{Lab: l, Binary: env.Binary, LogDir: env.Dir, Services: services})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		rig := &setupRig{env: env, deployment: d, raw: raw}
		if err := rig.open(ctx, l); err != nil {
			return err
		}
		return rig.run(ctx, r)
	})
	return r, err
}

// setupRig is a host that asks for paths, and one that answers, neither of which looks at signatures.
type setupRig struct {
	env        *Env
	deployment *stage.Deployment
	raw        *CSV
	asks       []*rawlink.Socket
	answers    *rawlink.Socket
	there      openflow.MAC
	sources    []ed25519.PrivateKey // setupSources of each host
	sending    sync.Mutex           // of any socket
	id         uint64
	label      uint16 // of the path that was asked for last
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
	return stage.Poll(ctx, "the link", func() error {
		n, err := g.deployment.Links(ctx)
		if err == nil && n < 2 {
			err = fmt.Errorf("%d directions are known", n)
		}
		return err
	})
}

// say has a host send frames.
func (g *setupRig) say(s *rawlink.Socket, frames ...[]byte) error {
	g.sending.Lock()
	defer g.sending.Unlock()
	return s.Send(frames)
}

// hello has a host say hello for a name.
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

	g.env.Steps(5)
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
	if err := g.tell(ctx, names); err != nil {
		return err
	}
	greeted := make(chan error, 1)
	go func() { greeted <- g.greet(answering, names) }()
	defer func() { stop(); err = errors.Join(err, <-greeted) }()
	destinations := make([]frame.GUID, len(answerers))
	for i, key := range answerers {
		destinations[i] = nameOf(key)
	}
	t := Table{Title: "Round trips", Columns: []string{"what", "times", "median ms", "p95 ms", "p99 ms"}}
	made := func(i int) (source int, to frame.GUID) {
		return i % len(g.sources), destinations[i/len(g.sources)]
	}
	for _, c := range []struct {
		what string
		most time.Duration // zero for none
		one  func(ctx context.Context, i int) error
	}{
		{"path to be made", setupUnknown, func(ctx context.Context, i int) error { source, to := made(i); return g.request(ctx, source, to) }},
		{"path asked for again", 0, func(ctx context.Context, _ int) error { return g.request(ctx, 0, destinations[0]) }},
		{"path that is there", setupKnown, g.byLabel},
	} {
		g.env.Step("%s, %d times", c.what, requests)
		took, err := g.times(ctx, c.what, requests, c.one)
		if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		ms := func(q float64) string { return fmt.Sprintf("%.3f", quantile(took, q)*1e3) }
		t.Add(c.what, requests, ms(0.5), ms(0.95), ms(0.99))
		if c.most > 0 {
			r.Claim(quantile(took, 0.5) <= c.most.Seconds(), fmt.Sprintf("%s: median at most %v", c.what, c.most), "%s ms", ms(0.5))
		}
	}
	g.env.Step("%d requests in bursts", requests)
	cpu, err := g.cost(ctx, requests, made)
	if err != nil {
		return err
	}
	r.Claim(cpu <= setupCPU, fmt.Sprintf("at most %v of the controller's CPU for a request, in bursts of %d", setupCPU, setupBurst), "%.1f us", cpu.Seconds()*1e6)
	before := Table{Title: "Published: table 4.1", Columns: []string{"", "round trip ms", "controller us"}}
	before.Add("with flow set-up", 3.5, 114)
	before.Add("without", 0.46, 32)
	r.Tables = append(r.Tables, t, before)
	r.Note("A round trip is from the first frame until its answer is there, at a raw socket of the host that asks, at most one every %v. That of a path that is to be made, or asked for again, is up to the controller, to the host of the name, and back by the label. By a path that is there, as each chunk goes that has one, the frame and its answer go by their labels.", setupEvery)
	r.Note("Hosts here neither look at signatures nor sign answers, which takes sluice mf host some 0.2 ms; the controller looks at those of hellos, before it is measured. %d names ask, of %d hosts, for %d of another: max_paths is set so that there may be so many paths.", len(g.sources), setupHosts, len(destinations))
	r.Note("CPU is the process's while requests come, %d at one time every %v, for paths that are there, less what it takes in the same time without them. One that comes alone costs more: threads have to wake.", setupBurst, setupBurstEvery)
	return nil
}

// cost is the controller's CPU for a request for a path that is there.
func (g *setupRig) cost(ctx context.Context, requests int, of func(i int) (source int, to frame.GUID)) (time.Duration, error) {
	bursts := requests / setupBurst
	idle, err := g.spend(func() error { return tasks.Sleep(ctx, time.Duration(bursts)*setupBurstEvery) })
	if err != nil {
		return 0, err
	}
	spent, err := g.spend(func() error {
		for burst := range bursts {
			began := time.Now()
			host := burst % setupHosts
			var frames [][]byte
			for i := range setupBurst {
				_, to := of(burst*setupBurst + i)
				frames = append(frames, g.frame(host*setupSources+i%setupSources, to))
			}
			if err := g.say(g.asks[host], frames...); err != nil {
				return fmt.Errorf("burst %d: %w", burst+1, err)
			}
			if err := g.await(ctx, host, g.id-setupBurst+1, setupBurst); err != nil {
				return fmt.Errorf("burst %d: %w", burst+1, err)
			}
			if err := tasks.Sleep(ctx, setupBurstEvery-time.Since(began)); err != nil {
				return err
			}
		}
		return nil
	})
	return (spent - idle) / time.Duration(bursts*setupBurst), err
}

// newNames makes so many.
func newNames(n int) (all []ed25519.PrivateKey, err error) {
	for range n {
		_, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			return nil, fmt.Errorf("making a name: %w", err)
		}
		all = append(all, key)
	}
	return all, nil
}

func nameOf(key ed25519.PrivateKey) frame.GUID {
	return record.NameOf(key.Public().(ed25519.PublicKey))
}

// tell has hosts say hello for their names until the controller knows all of them.
func (g *setupRig) tell(ctx context.Context, names map[*rawlink.Socket][]ed25519.PrivateKey) error {
	return stage.PollFor(ctx, time.Minute, "the names", func() error {
		var infos []plugin.NameInfo
		if err := g.deployment.Get(ctx, "/api/v1/mobilityfirst/names", &infos); err != nil {
			return err
		}
		known := map[string]bool{}
		for _, i := range infos {
			known[i.Name] = true
		}
		missing := 0
		for s, keys := range names {
			for _, key := range keys {
				if known[nameOf(key).String()] {
					continue
				}
				missing++
				if err := g.hello(s, key); err != nil {
					return err
				}
			}
		}
		if missing == 0 {
			return nil
		}
		return errors.Join(fmt.Errorf("%d names are not known", missing), tasks.Sleep(ctx, time.Second))
	})
}

// greet has hosts say hello for their names every 10 s, as sluice mf host does, until ctx ends.
func (g *setupRig) greet(ctx context.Context, names map[*rawlink.Socket][]ed25519.PrivateKey) error {
	for tasks.Sleep(ctx, 10*time.Second) == nil {
		for s, keys := range names {
			for _, key := range keys {
				if err := g.hello(s, key); err != nil {
					return fmt.Errorf("saying hello: %w", err)
				}
			}
		}
	}
	return nil
}

// spend is the controller's CPU while something is done.
func (g *setupRig) spend(do func() error) (time.Duration, error) {
	before, err := stage.CPUTime(g.deployment.Controller().PID())
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := stage.CPUTime(g.deployment.Controller().PID())
	return after - before, err
}

// times does something again and again, and gives how long it took, in seconds.
func (g *setupRig) times(ctx context.Context, what string, n int, do func(ctx context.Context, i int) error) (took []float64, err error) {
	for i := range n {
		began := time.Now()
		if err := do(ctx, i); err != nil {
			return nil, fmt.Errorf("number %d: %w", i+1, err)
		}
		took = append(took, time.Since(began).Seconds())
		if err := errors.Join(g.raw.Row(what, i+1, took[i]), tasks.Sleep(ctx, setupEvery-time.Since(began))); err != nil {
			return nil, err
		}
	}
	return took, nil
}

// frame is the next request, of one of the names that ask.
func (g *setupRig) frame(source int, to frame.GUID) []byte {
	g.id++
	s := g.asks[source/setupSources]
	q := frame.PathRequest{ID: g.id, Destination: to, Hello: frame.Hello{MAC: s.MAC}}
	copy(q.Hello.Key[:], g.sources[source].Public().(ed25519.PublicKey))
	return q.AppendTo(s.AppendHeader(nil, everybody, 0))
}

// request asks for a path, and waits for the answer.
func (g *setupRig) request(ctx context.Context, source int, to frame.GUID) error {
	host := source / setupSources
	if err := g.say(g.asks[host], g.frame(source, to)); err != nil {
		return err
	}
	return g.await(ctx, host, g.id, 1)
}

// byLabel sends a frame by the label of the path that was asked for last, by the first host, and waits for the
// answer.
func (g *setupRig) byLabel(ctx context.Context, i int) error {
	f := frame.Probe{Sequence: uint32(i)}
	if err := g.say(g.asks[0], f.AppendTo(g.asks[0].AppendHeader(nil, g.there, g.label))); err != nil {
		return err
	}
	return g.receive(ctx, 0, func(f frame.Frame) (bool, error) {
		a, is := f.(*frame.Probe)
		return is && a.Ack && a.Sequence == uint32(i), nil
	})
}

// await waits for the answers to so many requests from one on.
func (g *setupRig) await(ctx context.Context, host int, first uint64, n int) error {
	return g.receive(ctx, host, func(f frame.Frame) (bool, error) {
		if grant, is := f.(*frame.PathGrant); is && grant.Hello.Challenge >= first {
			if g.label = grant.Label; g.label == 0 {
				return false, errors.New("the answer has no label")
			}
			n--
		}
		return n == 0, nil
	})
}

// receive takes frames of a host until one says that it was the last.
func (g *setupRig) receive(ctx context.Context, host int, take func(frame.Frame) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, setupPatience)
	defer cancel()
	for {
		frames, err := g.asks[host].Receive(ctx)
		if err != nil {
			return fmt.Errorf("waiting for the answer: %w", err)
		}
		for _, x := range frames {
			f, err := frame.Parse(x.Payload)
			if err != nil {
				continue
			}
			if last, err := take(f); last || err != nil {
				return err
			}
		}
	}
}

// answer answers requests until ctx ends.
func (g *setupRig) answer(ctx context.Context) error {
	back := uint16(0)
	for {
		frames, err := g.answers.Receive(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("the host that answers: %w", err)
		}
		var answers [][]byte
		for _, x := range frames {
			asked, _ := frame.Parse(x.Payload)
			switch f := asked.(type) {
			case *frame.PathRequest:
				back = f.Back
				grant := frame.PathGrant{Label: f.Forth, Lease: f.Lease, Hello: frame.Hello{MAC: g.there, Challenge: f.ID}}
				answers = append(answers, grant.AppendTo(g.answers.AppendHeader(nil, x.From, back)))
			case *frame.Probe:
				answers = append(answers, (&frame.Probe{Ack: true, Sequence: f.Sequence}).AppendTo(g.answers.AppendHeader(nil, x.From, back)))
			}
		}
		if err := g.say(g.answers, answers...); err != nil {
			return fmt.Errorf("the host that answers: %w", err)
		}
	}
}
