package qos

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/critical"
	"github.com/sluice-net/sluice/services/qos/match"
	"github.com/sluice-net/sluice/services/qos/reserve"
	"github.com/sluice-net/sluice/services/qos/subflows"
	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/memstore"
)

const (
	// pathRate is the rate of each of the three paths.
	pathRate    = 10_000_000
	subflowMark = 11
	subflowPort = 7100
)

// threePaths returns two switches with a host each, and three paths of one more switch
// between them.
func threePaths(name string) lab.Topology {
	t := lab.Topology{Name: name}
	for _, s := range []string{"s1", "s2", "s3", "s4", "s5"} {
		t.Switches = append(t.Switches, lab.Switch{Name: s})
	}
	t.Hosts = []lab.Host{{Name: "a"}, {Name: "b"}}
	t.Links = []lab.Link{lab.Both("a", "s1", delayline.Params{}), lab.Both("b", "s5", delayline.Params{})}
	for _, s := range []string{"s2", "s3", "s4"} {
		for _, end := range []string{"s1", "s5"} {
			t.Links = append(t.Links, lab.Both(end, s, delayline.Params{Rate: pathRate, Queue: 64 << 10, Delay: 2 * time.Millisecond}))
		}
	}
	return t
}

// joins is such a network with rules by destination, where further subflows are placed.
type joins struct {
	t     *testing.T
	lab   *lab.Lab
	store store.Store
	runs  uint16
	idle  time.Duration // after which a silent subflow is over; 0 is 8 s
	// sampled makes switches send samples of packets, and large connections of plain TCP be
	// placed.
	sampled bool

	mu     sync.Mutex
	placed []subflows.Subflow // as they were when their SYNs went on
	syns   map[string]bool    // SYNs of connections that have come up, by their ends
	others int                // and other packets of connections

	// restored holds the subflows as the service knew them when it had started.
	restored []subflows.Subflow

	net      *network.Network
	subflows *subflows.Service
	critical *critical.Service
	stop     func()
}

// Name and HandlePacketIn record which packets of connections come to the controller,
// before any other handler.
func (*joins) Name() string { return "asked" }

func (j *joins) HandlePacketIn(p *network.PacketIn) network.Verdict {
	h := p.Headers
	ours := func(port uint16) bool { return port >= subflowPort && port < subflowPort+3 }
	if !ours(h.DstPort) && !ours(h.SrcPort) {
		return network.Continue
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if h.IsSYN() {
		if j.syns == nil {
			j.syns = map[string]bool{}
		}
		j.syns[fmt.Sprint(h.Src, h.SrcPort, h.Dst, h.DstPort)] = true // one that is sent again counts once
	} else {
		j.others++
	}
	return network.Continue
}

// asked returns of how many subflows SYNs have come to the controller, and how many other
// packets of connections have.
func (j *joins) asked() (syns, others int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.syns), j.others
}

// heard records events of subflows that have been placed.
func (j *joins) heard(kind string, attrs any) {
	if s, is := attrs.(subflows.Subflow); is && kind == "subflow.placed" {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.placed = append(j.placed, s)
	}
}

// given returns the switches by which subflows were forwarded when they were placed.
func (j *joins) given() []int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return middles(j.placed)
}

func newJoins(t *testing.T, name string) *joins {
	t.Helper()
	return beginJoins(t, &joins{t: t, lab: lab.New(t, threePaths(name)), store: memstore.New()})
}

// beginJoins starts the controller, and returns when the hosts can reach each other.
func beginJoins(t *testing.T, j *joins) *joins {
	t.Helper()
	j.start()
	t.Cleanup(func() { j.stop() })
	within(t, testTimeout, "the hosts to reach each other", func() error {
		return j.lab.Host("a").Command(t.Context(), "ping", "-c1", "-W1", j.lab.Host("b").Addr().String()).Run()
	})
	within(t, testTimeout, "rules for both", func() error {
		if n := j.net.HostStats().Destinations; n != 2 {
			return fmt.Errorf("for %d", n)
		}
		return nil
	})
	return j
}

// byKernel makes the kernels of both hosts open further subflows of each MPTCP connection,
// and mark their SYNs.
func (j *joins) byKernel() {
	j.t.Helper()
	for _, h := range []string{"a", "b"} {
		j.run(h, "ip", "mptcp", "limits", "set", "subflows", "8", "add_addr_accepted", "8")
	}
	for i := range 3 {
		address := fmt.Sprintf("10.0.9.%d", i+1)
		j.run("a", "ip", "address", "add", address+"/16", "dev", "eth0")
		j.run("a", "ip", "mptcp", "endpoint", "add", address, "subflow")
	}
	j.run("a", "nft", "add table inet marks; add chain inet marks output { type filter hook output priority mangle; }; "+
		fmt.Sprintf("add rule inet marks output tcp option mptcp subtype 1 tcp flags & (syn|ack) == syn ip dscp set %d", subflowMark))
}

func (j *joins) run(host string, name string, args ...string) {
	j.t.Helper()
	if out, err := j.lab.Host(host).Command(j.t.Context(), name, args...).CombinedOutput(); err != nil {
		j.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

func (j *joins) start() {
	j.t.Helper()
	ln, err := j.lab.Control().Listen("tcp", j.lab.ControllerAddr().String())
	if err != nil {
		j.t.Fatal(err)
	}
	j.runs++
	capacities := map[network.PortRef]uint64{}
	for _, s := range j.lab.Topology().Switches {
		for port := uint32(1); port < 16; port++ {
			capacities[network.PortRef{Switch: openflow.DatapathID(j.lab.Switch(s.Name).DPID()), Port: port}] = pathRate
		}
	}
	hostRate := uint64(10 * pathRate) // a host's link carries all three ways
	if j.sampled {
		hostRate = pathRate // a connection is large from a tenth of it on, also where three share a way
	}
	for _, l := range j.lab.Topology().Links {
		if l.A.Node != "a" && l.A.Node != "b" {
			continue
		}
		s := j.lab.Switch(l.B.Node)
		port, err := s.Port(l.Name)
		if err != nil {
			j.t.Fatal(err)
		}
		capacities[network.PortRef{Switch: openflow.DatapathID(s.DPID()), Port: uint32(port)}] = hostRate
	}
	log := slog.New(slog.DiscardHandler)
	measure, samples := network.MeasurePoll, net.PacketConn(nil)
	if j.sampled {
		measure, samples = network.MeasureBoth, j.samples()
	}
	j.net, err = network.New(network.Config{
		Measure: measure, SFlowConn: samples,
		Log: log, Generation: j.runs, DiscoveryInterval: 200 * time.Millisecond, DiscoverySettle: 200 * time.Millisecond,
		DiscoveryTimeout: 3500 * time.Millisecond, // the default: probes share full links
		StatsInterval:    500 * time.Millisecond, Capacities: capacities, Listeners: []net.Listener{ln}, Proactive: true,
	})
	if err != nil {
		j.t.Fatal(err)
	}
	owner, err := j.net.Owner(subflows.Owner, network.OwnerOptions{OnRemoved: func(r network.Removed) { j.subflows.Removed(r) }})
	if err != nil {
		j.t.Fatal(err)
	}
	promised, err := j.net.Owner(critical.Owner, network.OwnerOptions{OnRemoved: func(r network.Removed) { j.critical.Removed(r) }})
	if err != nil {
		j.t.Fatal(err)
	}
	book := reserve.New(reserve.UseOf(j.net))
	held := newGuard(j.t, j.net, book)
	var sampled subflows.Sampled
	if j.sampled {
		sampled = j.net.Traffic()
	}
	j.subflows = subflows.New(subflows.Options{
		Sampled:  sampled,
		Settings: subflows.Settings{Enabled: true, DSCP: subflowMark, Paths: 3, Most: 64, Idle: cmp.Or(j.idle, 8*time.Second)},
		Network:  j.net, Rules: owner, Store: j.store, Book: book, Guard: held, Log: log, Publish: j.heard, Interval: 500 * time.Millisecond,
	})
	j.critical = critical.New(critical.Options{
		Network: j.net, Rules: promised, Store: j.store, Book: book, Guard: held, Log: log, Publish: unheard, Interval: 500 * time.Millisecond,
	})
	j.net.AddHandler(rule.ChainHosts+1, j)
	j.net.AddHandler(rule.ChainCritical, j.critical)
	j.net.AddHandler(rule.ChainSubflow, j.subflows)
	j.net.Subscribe(j.subflows.NetworkChanged)
	j.net.Subscribe(j.critical.NetworkChanged)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, part := range []func(context.Context) error{j.net.Run, j.critical.Run, j.subflows.Run, held.Run} {
		running.Go(func() {
			if err := part(ctx); err != nil {
				j.t.Errorf("controller: %v", err)
			}
		})
	}
	j.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	<-j.subflows.Ready()
	j.restored = j.subflows.Subflows()
	<-j.critical.Ready()
	within(j.t, testTimeout, "all links", func() error {
		if n := len(j.net.Topology().Links); n != 12 {
			return fmt.Errorf("%d links", n)
		}
		return nil
	})
}

// middles returns the switches between s1 and s5 that subflows pass.
func middles(all []subflows.Subflow) (out []int) {
	for _, r := range all {
		if len(r.Path) == 3 {
			out = append(out, int(r.Path[1].Switch))
		}
	}
	slices.Sort(out)
	return out
}

// TestSmokeSubflow has the kernels of two hosts open three further subflows of a
// connection. The controller places them on more than one path, all of them carry bytes,
// and only their SYNs come to the controller. When they have been silent, nothing is left.
// The experiment multipath-gain measures how much faster the connection is.
func TestSmokeSubflow(t *testing.T) {
	t.Parallel()
	j := beginJoins(t, &joins{t: t, lab: lab.New(t, threePaths("qjoins")), store: memstore.New(), idle: 3 * time.Second})
	j.byKernel()
	j.during(func() {
		within(t, testTimeout, "three further subflows to carry bytes", func() error {
			all := j.subflows.Subflows()
			if len(all) != 3 || slices.ContainsFunc(all, func(s subflows.Subflow) bool { return s.Bytes == 0 }) {
				return fmt.Errorf("%+v", all)
			}
			return nil
		})
	})
	if at := j.given(); len(at) != 3 || len(slices.Compact(at)) < 2 {
		t.Errorf("the subflows were placed by %v", at)
	}
	if err := j.transfer(t.Context(), 1<<20, false); err != nil {
		t.Error(err)
	}
	if syns, others := j.asked(); syns != 3 || others != 0 {
		t.Errorf("SYNs of %d subflows have come up, and %d other packets", syns, others)
	}
	within(t, testTimeout, "the silent subflows to be over", func() error {
		if all := j.subflows.Subflows(); len(all) > 0 {
			return fmt.Errorf("%+v", all)
		}
		for _, s := range []string{"s1", "s2", "s3", "s4", "s5"} {
			flows, err := j.lab.Switch(s).Ofctl(t.Context(), "dump-flows")
			if err != nil || strings.Contains(flows, fmt.Sprint("tp_dst=", subflowPort)) {
				return fmt.Errorf("%s: %s, %w", s, flows, err)
			}
		}
		return nil
	})
}

// TestSubflowsOutliveLinkAndController takes down a link under a connection, and restarts
// the controller: everything that was sent arrives, and the subflow of the link has another
// path.
func TestSubflowsOutliveLinkAndController(t *testing.T) {
	t.Parallel()
	j := newJoins(t, "qjoinsfail")
	j.byKernel()
	j.during(func() {
		within(t, testTimeout, "three subflows, one of which goes by s3", func() error {
			if all := j.subflows.Subflows(); len(all) != 3 || !slices.Contains(middles(all), 3) {
				return fmt.Errorf("%+v", all)
			}
			return nil
		})
		if err := j.lab.SetLink(t.Context(), "s1-s3", false); err != nil {
			t.Fatal(err)
		}
		within(t, testTimeout, "the subflow to go another way", func() error {
			if at := middles(j.subflows.Subflows()); len(at) != 3 || slices.Contains(at, 3) {
				return fmt.Errorf("%v", at)
			}
			return nil
		})
		if err := j.lab.SetLink(t.Context(), "s1-s3", true); err != nil {
			t.Fatal(err)
		}
		j.stop()
		before := j.subflows.Subflows() // as they were when the controller ended: until then they may be moved
		j.start()
		if after := j.restored; len(after) != 3 || fmt.Sprint(ways(after)) != fmt.Sprint(ways(before)) {
			t.Errorf("before %+v, after %+v", before, after)
		}
	})
}

// A further subflow that is critical, too, has what is promised to it, and no path of the
// other kind.
func TestSubflowIsCritical(t *testing.T) {
	t.Parallel()
	j := newJoins(t, "qjoinscrit")
	j.byKernel()
	d, faults := critical.Spec{Name: "bulk", Rate: 2_000_000, Match: match.Flow{TCPDst: match.Text(fmt.Sprint(subflowPort))}}.Parse()
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if err := j.critical.Definitions.Add(t.Context(), d.Name, d); err != nil {
		t.Fatal(err)
	}
	j.during(func() {
		within(t, testTimeout, "all subflows of the connection to be critical", func() error {
			all := j.critical.Flows()
			if len(all) != 4 || slices.ContainsFunc(all, func(f critical.Record) bool { return f.State != critical.StateAccepted }) {
				return fmt.Errorf("%+v", all)
			}
			return nil
		})
	})
	if all := j.given(); len(all) != 0 || len(j.subflows.Subflows()) != 0 {
		t.Errorf("placed otherwise: %v, %+v", all, j.subflows.Subflows())
	}
}
