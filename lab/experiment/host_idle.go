package experiment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
)

const (
	idlePort = 7200
	// idleMost is the largest number of connections.
	idleMost = 1000
	// idleSettled is the time after the opening of the last connection when nothing happens any
	// more.
	idleSettled = 12 * time.Second
	// idleEvery is the interval of other traffic.
	idleEvery = 200 * time.Millisecond
)

func hostIdle() Experiment {
	return Experiment{
		Name:     "host-idle",
		Title:    "The CPU time of the host agent with idle connections",
		Question: "What does the host agent cost a host whose connections are not large?",
		Varies:   []string{"connections"},
		Run:      runHostIdle,
	}
}

// idled holds the agent's CPU usage with a number of idle connections, in percent of a core.
type idled struct {
	connections int
	idle        float64 // without traffic
	beside      float64 // while plain TCP increases the host's counters
}

// idleRig is two hosts at one switch, of which one has the agent.
type idleRig struct {
	env      *Env
	a, b     *lab.LiveHost
	agent    *testbed.Daemon
	listener net.Listener
	held     []net.Conn
	lasts    time.Duration
	result   []idled
}

func runHostIdle(ctx context.Context, env *Env) (*Result, error) {
	numbers := []int{0, 100, idleMost}
	chosen, err := chosenOr(env.Only, "connections", numbers, numbers, strconv.Itoa)
	if err != nil {
		return nil, err
	}
	raw, err := env.CSV("idle", "connections", "idle_percent", "beside_percent")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	env.Steps(len(chosen))
	rig := &idleRig{env: env, lasts: pick(env.Scale, 10*time.Second, 30*time.Second, 60*time.Second)}
	topology := lab.Topology{
		Name: "hostidle", Switches: []lab.Switch{{Name: "s1"}}, Hosts: []lab.Host{{Name: "a"}, {Name: "b"}},
		Links: []lab.Link{{A: lab.End{Node: "a"}, B: lab.End{Node: "s1"}}, {A: lab.End{Node: "b"}, B: lab.End{Node: "s1"}}},
	}
	err = env.withLab(ctx, topology, func(ctx context.Context, l *lab.Lab) error { return rig.run(ctx, l, chosen) })
	for _, i := range rig.result {
		err = errors.Join(err, raw.Row(i.connections, i.idle, i.beside))
	}
	return rig.report(), err
}

func (r *idleRig) run(ctx context.Context, l *lab.Lab, numbers []int) (err error) {
	r.a, r.b = l.Host("a"), l.Host("b")
	n, err := testbed.DeployNetwork(ctx, testbed.NetworkOptions{
		Lab: l, Binary: r.env.Binary, LogDir: r.env.Dir, Interval: 5 * time.Second, Rate: func(lab.Link) float64 { return 1e9 },
		Settings: "  forwarding: {mode: proactive}\n",
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if err := awaitReachable(ctx, r.a, r.a.Addr(), r.b.Addr()); err != nil {
		return err
	}
	if r.agent, err = testbed.StartHostAgent(ctx, r.a, r.env.Binary, r.env.Dir); err != nil {
		return err
	}
	defer r.agent.Stop()
	var lc net.ListenConfig
	lc.SetMultipathTCP(true)
	err = r.b.Do(func() (err error) {
		r.listener, err = lc.Listen(ctx, "tcp4", netip.AddrPortFrom(r.b.Addr(), idlePort).String())
		return err
	})
	if err != nil {
		return err
	}
	defer r.listener.Close()
	defer func() {
		for _, c := range r.held {
			c.Close()
		}
	}()
	for _, n := range numbers {
		if err := r.measure(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// measure opens connections up to the given number, and measures the agent.
func (r *idleRig) measure(ctx context.Context, connections int) error {
	r.env.Step("%d idle connections", connections)
	for len(r.held) < 2*connections {
		if err := r.open(ctx); err != nil {
			return err
		}
	}
	i := idled{connections: connections}
	if err := tasks.Sleep(ctx, idleSettled); err != nil {
		return err
	}
	var err error
	if i.idle, err = r.used(ctx, nil); err != nil {
		return err
	}
	// Each of these pings carries 60 kB in both directions, more than a connection may carry
	// without being examined.
	i.beside, err = r.used(ctx, func(ctx context.Context) error {
		count := strconv.Itoa(int(r.lasts / idleEvery))
		out, err := r.a.Command(ctx, "ping", "-q", "-s", "60000", "-i", "0.2", "-c", count, r.b.Addr().String()).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ping: %w: %s", err, out)
		}
		return nil
	})
	r.env.Logf("%d connections: %.3f %% of a core, %.3f %% beside other traffic", connections, i.idle, i.beside)
	r.result = append(r.result, i)
	return err
}

// open opens one connection of Multipath TCP and keeps both ends.
func (r *idleRig) open(ctx context.Context) error {
	var d net.Dialer
	d.SetMultipathTCP(true)
	err := r.a.Do(func() error {
		c, err := d.DialContext(ctx, "tcp4", r.listener.Addr().String())
		if err == nil {
			r.held = append(r.held, c)
		}
		return err
	})
	if err != nil {
		return err
	}
	c, err := r.listener.Accept()
	if err != nil {
		return err
	}
	r.held = append(r.held, c)
	if multi, err := c.(*net.TCPConn).MultipathTCP(); err != nil || !multi {
		return fmt.Errorf("a connection is plain TCP: %w", err)
	}
	_, err = c.Write([]byte{1}) // Otherwise the kernel does not treat it as established.
	return err
}

// used returns the agent's share of a core while do runs, or without traffic if do is nil.
func (r *idleRig) used(ctx context.Context, do func(context.Context) error) (float64, error) {
	meter, err := startCPUMeter(r.agent.PID())
	if err != nil {
		return 0, err
	}
	if do == nil {
		do = func(ctx context.Context) error { return tasks.Sleep(ctx, r.lasts) }
	}
	if err := do(ctx); err != nil {
		return 0, err
	}
	return meter.percent()
}

func (r *idleRig) report() *Result {
	out := &Result{Network: "two hosts at one switch; one has the host agent with its default settings"}
	t := Table{Title: "CPU time of the agent", Columns: []string{"connections", "nothing is sent, % of a core", "beside 5 Mbit/s of other traffic, % of a core"}}
	for _, i := range r.result {
		t.Add(i.connections, fmt.Sprintf("%.3f", i.idle), fmt.Sprintf("%.3f", i.beside))
		out.Claim(i.idle <= 0.1, fmt.Sprintf("%d idle connections, nothing is sent: at most 0.1 %% of a core", i.connections), "%.3f %%", i.idle)
		out.Claim(i.beside <= 0.5, fmt.Sprintf("%d idle connections, and other traffic: at most 0.5 %% of a core", i.connections), "%.3f %%", i.beside)
	}
	out.Tables = append(out.Tables, t)
	out.Note("The agent's CPU clock, over %v each. Without connections it is woken by nothing. With some it reads the host's counters of IP every two seconds, and asks for each connection only when the host has carried as much as would make a difference to one.", r.lasts)
	return out
}
