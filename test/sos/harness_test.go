package sos

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/sos"
	"github.com/sluice-net/sluice/services/sos/agent"
	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/memstore"
)

// testTimeout bounds every wait of these tests. It is only reached when a test fails.
const testTimeout = 30 * time.Second

// wan is a link with a substantial latency that a transfer fills within seconds.
var wan = lab.WANOptions{Rate: 200e6, RTT: 40 * time.Millisecond, Loss: -1}

const token = "integration"

// world is a lab with agents, and a controller that can be stopped and started.
type world struct {
	t      testing.TB
	lab    *lab.Lab
	keys   string // folder of certificates
	agents map[string]*agentProcess
	store  store.Store
	v6     bool // traffic is IPv6
	// translated reports that a switch which the controller does not manage lies on the
	// link between the others.
	translated bool

	*controller
}

// controller is one run of a controller.
type controller struct {
	net  *network.Network
	sos  *sos.Service
	api  *httptest.Server
	rest *client.Client
	stop func()
}

// options holds the options of newWorld.
type options struct {
	agent    func(*agent.Config) // changes every agent's configuration
	quiet    bool                // the test calls allow itself
	noAgents bool                // the test starts agents itself
	warm     bool                // agents have connections before their first session, and so rules
}

// entry is a specification of a whitelist entry.
type entry = sos.EntrySpec

// newWorld brings up a lab, an agent on each host marked for one, and a
// controller with a whitelist entry for port 80 to 89 of the server.
func newWorld(t testing.TB, top lab.Topology, o options) *world {
	t.Helper()
	w := &world{t: t, lab: lab.New(t, top), keys: t.TempDir(), agents: map[string]*agentProcess{}, store: memstore.New()}
	var hosts []string
	for _, h := range w.lab.Topology().Hosts {
		if h.Agent {
			hosts = append(hosts, h.Name)
		}
	}
	w.issue(hosts)
	w.startController()
	t.Cleanup(func() {
		if t.Failed() {
			w.describe()
		}
		w.stop()
	})
	if !o.warm {
		w.coldStart()
	}
	if !o.noAgents {
		for _, h := range hosts {
			w.startAgent(h, o.agent)
			w.addAgent(h)
		}
	}
	if !o.quiet {
		w.allow(nil)
	}
	return w
}

// coldStart makes agents open no connections before their first session, so that they have no rules
// then.
func (w *world) coldStart() {
	w.t.Helper()
	if err := w.rest.Do(w.t.Context(), http.MethodPatch, "/api/v1/sos/config", sos.ConfigChange{WarmPeers: new(0)}, nil); err != nil {
		w.t.Fatal(err)
	}
}

// describe logs the state of a world in which a test has failed.
func (w *world) describe() {
	top := w.net.Topology()
	w.t.Logf("links: %v", top.Links)
	w.t.Logf("hosts: %v", w.net.Hosts())
	for _, what := range []string{"status", "agents", "sessions"} {
		var v any
		err := w.rest.Get(context.Background(), "/api/v1/sos/"+what, &v)
		w.t.Logf("%s: %v %v", what, v, err)
	}
	for _, s := range w.switches() {
		flows, err := w.lab.Switch(s).Ofctl(context.Background(), "dump-flows")
		w.t.Logf("%s: %v\n%s", s, err, flows)
	}
}

// addAgent adds an agent to the controller.
func (w *world) addAgent(host string) {
	w.t.Helper()
	cfg := w.agents[host].cfg
	spec := control.AgentSpec{Name: host, URL: "https://" + cfg.Listen, Addrs: []string{cfg.DataAddr.String()}}
	if cfg.SecondAddr.IsValid() {
		spec.Addrs = append(spec.Addrs, cfg.SecondAddr.String())
	}
	w.post("agents", spec, nil)
}

// allow whitelists ports 80 to 89 of the server and waits until everything is
// ready for connections.
func (w *world) allow(change func(*entry)) {
	w.t.Helper()
	e := entry{Clients: []string{"0.0.0.0/0"}, Servers: []string{w.serverAddr(80).Addr().String()}, Ports: []string{"80-89"}}
	if w.v6 {
		e.Clients = []string{"::/0"}
	}
	if change != nil {
		change(&e)
	}
	w.post("whitelist", e, nil)
	w.settled()
}

// startController runs a controller in the lab's control namespace, like a process that
// starts: it knows only what is in the store, at the agents and in the switches.
func (w *world) startController() {
	w.t.Helper()
	ln, err := w.lab.Control().Listen("tcp", w.lab.ControllerAddr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(testWriter{w.t}, nil))
	overrides := map[openflow.DatapathID]network.Override{}
	for _, s := range w.lab.Topology().Switches {
		overrides[openflow.DatapathID(s.DPID)] = network.Override{L2Rewrite: slices.Contains(s.Capabilities, lab.CapabilityL2Rewrite)}
	}
	n, err := network.New(network.Config{
		Listeners: []net.Listener{ln}, Log: log, Overrides: overrides,
		DiscoveryInterval: 200 * time.Millisecond, DiscoverySettle: 300 * time.Millisecond, DiscoveryTimeout: 2 * time.Second,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	owner, err := n.Owner(sos.Name, network.OwnerOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	tls, err := pki.Client(pki.Files{
		Cert: filepath.Join(w.keys, "controller.crt"), Key: filepath.Join(w.keys, "controller.key"), CA: filepath.Join(w.keys, "ca.crt"),
	}, pki.RoleAgent)
	if err != nil {
		w.t.Fatal(err)
	}
	bus := event.NewBus(1, 0)
	s, err := sos.New(sos.Options{
		Network: n, Rules: owner, Store: w.store, Bus: bus, Log: log, AgentTLS: tls,
		Dial: w.lab.Control().DialContext, Linger: 300 * time.Millisecond,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	n.AddHandler(rule.ChainSOS, s)
	n.Subscribe(s.NetworkChanged)
	a := api.New(api.Options{Version: "test", Bus: bus, Log: log, Auth: api.Auth{Tokens: []api.Token{api.NewToken("test", token)}}})
	s.Register(a)
	server := httptest.NewServer(a.Handler())
	rest, err := client.New(client.Options{Server: server.URL, Token: token})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- n.Run(ctx) }()
	go func() { ended <- s.Run(ctx) }()
	c := &controller{net: n, sos: s, api: server, rest: rest}
	c.stop = func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				w.t.Error(err)
			}
		}
		rest.Close()
		server.Close()
		bus.Close()
		c.stop = func() {}
	}
	w.controller = c
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

// switches returns the names of the switches that the controller controls.
func (w *world) switches() []string {
	var names []string
	for _, s := range w.lab.Topology().Switches {
		if len(s.Flows) == 0 {
			names = append(names, s.Name)
		}
	}
	return names
}

// settled waits until all switches, links and agents are known, and the punt
// rules are in the edge switches.
func (w *world) settled() {
	w.t.Helper()
	top := w.lab.Topology()
	isSwitch := map[string]bool{}
	for _, s := range w.switches() {
		isSwitch[s] = true
	}
	inner, edge := 0, map[string]bool{}
	for _, l := range top.Links {
		if isSwitch[l.A.Node] && isSwitch[l.B.Node] {
			inner++
			continue
		}
		edge[l.A.Node], edge[l.B.Node] = true, true
	}
	w.eventually("switches, links and agents are known", func() bool {
		t := w.net.Topology()
		if w.translated {
			inner = 1
		}
		if len(t.Switches) != len(isSwitch) || len(t.Links) != 2*inner {
			return false
		}
		for _, l := range t.Links {
			if l.Latency == 0 {
				return false
			}
		}
		for _, a := range w.agentInfos() {
			if a.State != agents.Up || len(a.Places) == 0 || len(a.DataPorts) == 0 {
				return false
			}
		}
		return true
	})
	w.eventually("punt rules are in the switches", func() bool {
		punts := fmt.Sprintf("priority=%d,", network.StageSelect.Base()+rule.SelectConnection)
		for _, s := range w.switches() {
			if edge[s] && !strings.Contains(w.flows(s), punts) {
				return false
			}
		}
		return true
	})
}

// eventually polls with a deadline.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	w.within(testTimeout, what, ok)
}

func (w *world) within(d time.Duration, what string, ok func() bool) {
	w.t.Helper()
	deadline := time.After(d)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			w.t.Fatalf("waited %v in vain for: %s", d, what)
		case <-tick.C:
		}
	}
}

// post and get call the service's API.
func (w *world) post(path string, in, out any) {
	w.t.Helper()
	if err := w.rest.Do(w.t.Context(), "POST", "/api/v1/sos/"+path, in, out); err != nil {
		w.t.Fatalf("POST %s: %v", path, err)
	}
}

func (w *world) get(path string, out any) {
	w.t.Helper()
	if err := w.rest.Get(w.t.Context(), "/api/v1/sos/"+path, out); err != nil {
		w.t.Fatalf("GET %s: %v", path, err)
	}
}

func (w *world) agentInfos() []agents.AgentInfo {
	var list []agents.AgentInfo
	w.get("agents", &list)
	return list
}

func (w *world) sessions(state string) []sos.Record {
	var list []sos.Record
	w.get("sessions?state="+state, &list)
	return list
}

// live waits for the only live session.
func (w *world) live() sos.Record {
	w.t.Helper()
	var r sos.Record
	w.eventually("a session is live", func() bool {
		list := w.sessions("live")
		if len(list) == 1 && list[0].State == sos.StateLive {
			r = list[0]
			return true
		}
		return false
	})
	return r
}

// flows returns a dump of a switch's rules.
func (w *world) flows(name string) string {
	w.t.Helper()
	out, err := w.lab.Switch(name).Ofctl(context.WithoutCancel(w.t.Context()), "dump-flows", "--no-stats")
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// serviceRules returns the rules of sessions and between agents in a switch, without cookie
// and priority.
func (w *world) serviceRules(name string) []string {
	w.t.Helper()
	out, err := w.lab.Switch(name).Ofctl(context.WithoutCancel(w.t.Context()), "dump-flows", "--no-stats", "--no-names")
	if err != nil {
		w.t.Fatal(err)
	}
	var rules []string
	for _, line := range strings.Split(out, "\n") {
		line = strings.TrimSpace(line)
		for _, priority := range sessionPriorities {
			if _, rule, ok := strings.Cut(line, "priority="+priority); ok {
				rules = append(rules, rule)
			}
		}
	}
	slices.Sort(rules)
	return rules
}

// clean waits until no session, and no rule of one, is left anywhere.
func (w *world) clean() {
	w.t.Helper()
	for _, s := range w.switches() {
		w.eventually("no session's rule is left in "+s, func() bool { return len(w.serviceRules(s)) == 0 })
	}
	w.eventually("no session is left", func() bool { return len(w.sessions("live")) == 0 })
	w.eventually("no agent has a session", func() bool {
		for _, a := range w.agentInfos() {
			if a.State == agents.Up && (a.Sessions != 0 || a.Load.Sessions != 0) {
				return false
			}
		}
		return true
	})
}

// serverAddr returns the server's address with a port.
func (w *world) serverAddr(port uint16) netip.AddrPort {
	h := w.lab.Host("server")
	if w.v6 {
		return netip.AddrPortFrom(h.Addr6(), port)
	}
	return netip.AddrPortFrom(h.Addr(), port)
}
