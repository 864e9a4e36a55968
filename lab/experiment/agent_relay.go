package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// These are the number of connections between the agents, the bounds of the CPU time that they may
// use, and the rate that they must reach.
const (
	relayConnections = 4
	// relaySecondsBound bounds the CPU seconds that each agent may use for a GB.
	relaySecondsBound = 0.08
	// relayCPUBound bounds the CPU time of a pair of agents, as a share of that of a pair of
	// haproxy processes in the same run, because machines differ.
	relayCPUBound  = 0.44
	relayRateBound = 15e9 // bit/s
)

func agentRelay() Experiment {
	return Experiment{
		Name:     "agent-relay",
		Title:    "What a pair of agents costs and carries, without a network in the way",
		Question: "How much CPU does a byte cost at each agent, and does a stopped reader make memory grow?",
		Varies:   []string{"way"},
		Run:      runRelay,
	}
}

// relayLine returns four hosts in a row: client-x-y-server, joined by virtual cables. All use
// cubic, the default of Debian: the proxies do not choose an algorithm themselves, and if bbr were
// the machine's default they would be paced.
func relayLine() lab.Topology {
	prefix := netip.MustParsePrefix
	addr := netip.MustParseAddr
	end := func(node, a string) lab.End {
		return lab.End{Node: node, Addresses: []netip.Prefix{prefix(a)}}
	}
	return lab.Topology{
		Name: "relay",
		Hosts: []lab.Host{
			{Name: "client", Congestion: "cubic", Routes: []lab.Route{{To: prefix("10.0.0.0/8"), Via: addr("10.0.1.2")}}},
			{Name: "x", Agent: true, Router: true, Congestion: "cubic", Routes: []lab.Route{{To: prefix("10.0.3.0/24"), Via: addr("10.0.2.2")}}},
			{Name: "y", Agent: true, Router: true, Congestion: "cubic", Routes: []lab.Route{{To: prefix("10.0.1.0/24"), Via: addr("10.0.2.1")}}},
			{Name: "server", Congestion: "cubic", Routes: []lab.Route{{To: prefix("10.0.0.0/8"), Via: addr("10.0.3.1")}}},
		},
		Links: []lab.Link{
			{A: end("client", "10.0.1.1/24"), B: end("x", "10.0.1.2/24"), MTU: 9000},
			{A: end("x", "10.0.2.1/24"), B: end("y", "10.0.2.2/24"), MTU: 9000},
			{A: end("y", "10.0.3.1/24"), B: end("server", "10.0.3.2/24"), MTU: 9000},
		},
	}
}

var (
	relayClient = netip.MustParseAddr("10.0.1.1")
	relayX      = netip.MustParseAddr("10.0.2.1")
	relayY      = netip.MustParseAddr("10.0.2.2")
	relayServer = netip.MustParseAddr("10.0.3.2")
)

func runRelay(ctx context.Context, env *Env) (*Result, error) {
	raw, err := env.CSV("relay", "way", "run", "bits_per_second", "x_cpu_seconds_per_gb", "y_cpu_seconds_per_gb")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	rig := &relayRig{env: env}
	ways, err := chosen(env.Only, "way", rig.ways(), func(w relayWay) string { return w.name })
	if err != nil {
		return nil, err
	}
	repeats := pick(env.Scale, 1, 3, 5)
	env.Steps(len(ways)*repeats + 1)
	r := &Result{Network: "four network namespaces in a row, joined by veth pairs with segmentation offload; no switch, no delay"}
	err = env.withLab(ctx, relayLine(), func(ctx context.Context, l *lab.Lab) error {
		if err := offload(ctx, l); err != nil {
			return err
		}
		agents, err := testbed.DeployAgents(ctx, testbed.Options{Lab: l, Binary: env.Binary, LogDir: env.Dir})
		if err != nil {
			return err
		}
		defer agents.Close()
		rig.lab, rig.agents = l, agents
		if err := rig.compare(ctx, raw, r, ways, repeats); err != nil || !includesSOS(ways) {
			return err
		}
		return rig.stopReader(ctx, r)
	})
	if err != nil {
		return nil, err
	}
	r.Note("CPU is that of the agents' and proxies' processes, user and system, as /proc counts it. Sender and receiver run on the same cores and are not counted, but they take time away: the rates are what is left.")
	return r, nil
}

// offload enables segmentation offload, which any real network card has, on the hosts' virtual
// cables.
func offload(ctx context.Context, l *lab.Lab) error {
	for host, interfaces := range map[string][]string{"client": {"eth0"}, "x": {"eth0", "eth1"}, "y": {"eth0", "eth1"}, "server": {"eth0"}} {
		for _, name := range interfaces {
			out, err := l.Host(host).Command(ctx, "ethtool", "-K", name, "tx", "on", "tso", "on", "gso", "on").CombinedOutput()
			if err != nil {
				return fmt.Errorf("offload of %s at %s: %w: %s", name, host, err, out)
			}
		}
	}
	return nil
}

// relayRig is the row of hosts, with an agent on x and on y.
type relayRig struct {
	env    *Env
	lab    *lab.Lab
	agents *testbed.Deployment
	port   uint16 // the last port that a server used
}

// relayRun holds the results of one transfer.
type relayRun struct {
	bitsPerSecond float64
	x, y          float64 // CPU seconds for each GB
}

// relayWay opens a connection from client to server, and returns it with the processes that relay
// it.
type relayWay struct {
	name string
	open func(context.Context) (*relayed, error)
}

// relayed is an open connection.
type relayed struct {
	*testbed.Flow
	x, y  int // process IDs; 0 if no process relays it
	close func()
}

// These are the names of the ways.
const (
	relayDirect  = "direct"
	relayHaproxy = "haproxy pair"
	relaySplice  = "splice loops"
	relaySOS     = "SOS"
)

func (rig *relayRig) ways() []relayWay {
	return []relayWay{{relayDirect, rig.openDirect}, {relayHaproxy, rig.openProxied}, {relaySplice, rig.openSpliced}, {relaySOS, rig.openCarried}}
}

// includesSOS reports whether the agents are among the ways.
func includesSOS(ways []relayWay) bool {
	return slices.ContainsFunc(ways, func(w relayWay) bool { return w.name == relaySOS })
}

func (rig *relayRig) compare(ctx context.Context, raw *CSV, r *Result, ways []relayWay, repeats int) error {
	table := Table{Title: fmt.Sprintf("Medians of %d runs; SOS with %d connections", repeats, relayConnections), Columns: []string{"way", "Gbit/s", "CPU s/GB near client", "CPU s/GB near server"}}
	medians := map[string]relayRun{}
	for _, way := range ways {
		var rates, xs, ys []float64
		for i := range repeats {
			rig.env.Step("%s, run %d", way.name, i+1)
			run, err := rig.measure(ctx, way)
			if err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
			rig.env.Logf("%.1f Gbit/s, %.3f and %.3f CPU seconds a GB", run.bitsPerSecond/1e9, run.x, run.y)
			if err := raw.Row(way.name, i+1, run.bitsPerSecond, run.x, run.y); err != nil {
				return err
			}
			rates, xs, ys = append(rates, run.bitsPerSecond), append(xs, run.x), append(ys, run.y)
		}
		m := relayRun{median(rates), median(xs), median(ys)}
		medians[way.name] = m
		table.Add(way.name, fmt.Sprintf("%.1f", m.bitsPerSecond/1e9), fmt.Sprintf("%.3f", m.x), fmt.Sprintf("%.3f", m.y))
	}
	r.Tables = append(r.Tables, table)
	if len(ways) == len(rig.ways()) {
		claimRelay(r, medians)
	}
	return nil
}

// claimRelay makes the claims about CPU time and rate. They need all ways, because machines differ.
func claimRelay(r *Result, medians map[string]relayRun) {
	sos, proxy, loops := medians[relaySOS], medians[relayHaproxy], medians[relaySplice]
	share := (sos.x + sos.y) / (proxy.x + proxy.y)
	r.Claim(share <= relayCPUBound, fmt.Sprintf("the agents cost at most %.2f of what a pair of haproxy does", relayCPUBound), "%.2f: %.3f and %.3f CPU seconds a GB, haproxy %.3f and %.3f", share, sos.x, sos.y, proxy.x, proxy.y)
	worse := max(sos.x, sos.y)
	r.Claim(worse <= relaySecondsBound, fmt.Sprintf("each agent uses at most %.2f CPU seconds a GB", relaySecondsBound), "%.3f in the worse of the two, haproxy %.3f, splice loops %.3f", worse, max(proxy.x, proxy.y), max(loops.x, loops.y))
	r.Claim(sos.bitsPerSecond >= relayRateBound, fmt.Sprintf("at least %.0f Gbit/s through the pair", relayRateBound/1e9), "%.1f Gbit/s (haproxy: %.1f, splice loops: %.1f, direct: %.1f)", sos.bitsPerSecond/1e9, proxy.bitsPerSecond/1e9, loops.bitsPerSecond/1e9, medians[relayDirect].bitsPerSecond/1e9)
}

func (rig *relayRig) measure(ctx context.Context, way relayWay) (run relayRun, err error) {
	c, err := way.open(ctx)
	if err != nil {
		return run, err
	}
	defer c.close()
	duration := pick[time.Duration](rig.env.Scale, 2, 5, 10) * time.Second
	// The first second, in which windows grow, does not count.
	if _, _, err := c.Pump(ctx, time.Second); err != nil {
		return run, err
	}
	before, err := processTimes(c.x, c.y)
	if err != nil {
		return run, err
	}
	bytes, took, err := c.Pump(ctx, duration)
	if err != nil {
		return run, err
	}
	after, err := processTimes(c.x, c.y)
	if err != nil {
		return run, err
	}
	gb := float64(bytes) / 1e9
	run.bitsPerSecond = float64(bytes) * 8 / took.Seconds()
	run.x, run.y = (after[0]-before[0]).Seconds()/gb, (after[1]-before[1]).Seconds()/gb
	return run, nil
}

func processTimes(pids ...int) ([]time.Duration, error) {
	times := make([]time.Duration, len(pids))
	for i, pid := range pids {
		if pid == 0 {
			continue
		}
		var err error
		if times[i], err = testbed.CPUTime(pid); err != nil {
			return nil, err
		}
	}
	return times, nil
}

// nextServer returns an address that no earlier run has used.
func (rig *relayRig) nextServer() netip.AddrPort {
	rig.port = max(rig.port, 20000) + 1
	return netip.AddrPortFrom(relayServer, rig.port)
}

func (rig *relayRig) openDirect(ctx context.Context) (*relayed, error) {
	server := rig.nextServer()
	f, err := testbed.OpenFlow(ctx, testbed.FlowOptions{Client: rig.lab.Host("client"), Server: rig.lab.Host("server"), Listen: server, Dial: server})
	if err != nil {
		return nil, err
	}
	return &relayed{Flow: f, close: f.Close}, nil
}

func (rig *relayRig) openProxied(ctx context.Context) (*relayed, error) {
	return rig.openRelayed(ctx, func(at *lab.LiveHost, listen, next netip.AddrPort) (*testbed.Daemon, error) {
		return testbed.StartHAProxy(ctx, at, rig.env.Dir, listen, next.String())
	})
}

func (rig *relayRig) openSpliced(ctx context.Context) (*relayed, error) {
	return rig.openRelayed(ctx, func(at *lab.LiveHost, listen, next netip.AddrPort) (*testbed.Daemon, error) {
		return testbed.StartSplice(ctx, at, rig.env.Dir, listen, next)
	})
}

// openRelayed opens a connection through a relay on y and one on x, which start starts.
func (rig *relayRig) openRelayed(ctx context.Context, start func(at *lab.LiveHost, listen, next netip.AddrPort) (*testbed.Daemon, error)) (*relayed, error) {
	server := rig.nextServer()
	near, far := netip.AddrPortFrom(relayX, server.Port()), netip.AddrPortFrom(relayY, server.Port())
	y, err := start(rig.lab.Host("y"), far, server)
	if err != nil {
		return nil, err
	}
	x, err := start(rig.lab.Host("x"), near, far)
	if err != nil {
		y.Stop()
		return nil, err
	}
	f, err := testbed.OpenFlow(ctx, testbed.FlowOptions{Client: rig.lab.Host("client"), Server: rig.lab.Host("server"), Listen: server, Dial: near})
	if err != nil {
		x.Stop()
		y.Stop()
		return nil, err
	}
	return &relayed{Flow: f, x: x.PID(), y: y.PID(), close: func() { f.Close(); x.Stop(); y.Stop() }}, nil
}

// openCarried announces a session to both agents, as a controller does, and connects to the port
// that the client's agent has opened for it. Because there is no switch that could steer the
// connection, the client dials its agent.
func (rig *relayRig) openCarried(ctx context.Context) (*relayed, error) {
	server := rig.nextServer()
	client := netip.AddrPortFrom(relayClient, server.Port())
	var near agentapi.PrepareReply
	f, err := testbed.OpenFlow(ctx, testbed.FlowOptions{
		Client: rig.lab.Host("client"), Server: rig.lab.Host("server"), Listen: server, From: client,
		Prepare: func(ctx context.Context) (dial netip.AddrPort, err error) {
			near, err = rig.announce(ctx, client, server)
			return netip.AddrPortFrom(near.Addr, near.Port), err
		},
	})
	if err != nil {
		return nil, err
	}
	return &relayed{Flow: f, x: rig.agents.Agent("x").PID(), y: rig.agents.Agent("y").PID(), close: f.Close}, nil
}

func (rig *relayRig) announce(ctx context.Context, client, server netip.AddrPort) (agentapi.PrepareReply, error) {
	x, err := rig.agents.AgentClient("x")
	if err != nil {
		return agentapi.PrepareReply{}, err
	}
	defer x.Close()
	y, err := rig.agents.AgentClient("y")
	if err != nil {
		return agentapi.PrepareReply{}, err
	}
	defer y.Close()
	request := agentapi.PrepareRequest{
		ID: agentapi.NewSessionID(), Key: agentapi.NewKey(), Role: agentapi.RoleServer, Client: client, Server: server,
		Peer: agentapi.Peer{Addr: relayX}, Params: agentapi.Params{Connections: relayConnections},
	}
	far, err := y.Prepare(ctx, request)
	if err != nil {
		return agentapi.PrepareReply{}, fmt.Errorf("prepare at y: %w", err)
	}
	request.Role, request.Peer = agentapi.RoleClient, agentapi.Peer{Addr: relayY, DataPorts: far.DataPorts}
	near, err := x.Prepare(ctx, request)
	if err != nil {
		return near, fmt.Errorf("prepare at x: %w", err)
	}
	// The server must listen before its agent dials it, and testbed.OpenFlow listens before it
	// calls Prepare.
	return near, errors.Join(y.Commit(ctx, request.ID), x.Commit(ctx, request.ID))
}
