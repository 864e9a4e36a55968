package experiment

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/qos/critical"
	"github.com/sluice-net/sluice/services/qos/match"
)

// These ports distinguish critical flows from others.
const (
	criticalPort = 5001
	plainPort    = 5002
)

// required is the rate that each critical flow requires, in bit/s of frames as links count them,
// which is the rate of its host's link. Without TCP timestamps 1460 of the 1514 bytes of a full
// frame are payload.
const (
	required     = 10_000_000
	payloadShare = 1460.0 / 1514
)

// These are the rates in Mbit/s that are left for the payload of a flow that shares its host's link
// with the acknowledgements of another flow, one for every second segment. With timestamps these
// have 66 bytes, and segments 1448 bytes of payload; without them 54 and 1460.
const (
	sharedWith    = 10 / (1514.0/1448 + 66.0/2896)
	sharedWithout = 10 / (1514.0/1460 + 54.0/2920)
)

// plain returns a host that differs from an ordinary one in two things. It sends no TCP timestamps:
// with them, no flow that shares its host's link with acknowledgements could reach the required 9.4
// Mbit/s. And its windows are limited to 1 MB, eight times what a path here holds: while a window
// grows, the receiver acknowledges every segment instead of every second one, and growth up to the
// usual 6 MB takes a third of a transfer whose times are divided.
func plain(h lab.Host) lab.Host {
	h = ordinary(h)
	h.Sysctls["net.ipv4.tcp_timestamps"] = "0"
	h.Sysctls["net.ipv4.tcp_rmem"] = "4096 131072 1048576"
	return h
}

// qosFlow is one transfer of an experiment. Times are those of the experiment, after compression.
type qosFlow struct {
	number   int
	from, to string
	start    time.Duration
	critical bool
	bytes    int64
	lasts    time.Duration // if it has no size
}

// qosOutcome holds the results of a flow.
type qosOutcome struct {
	qosFlow
	log *testbed.BulkLog
	// place is the controller's last record of the flow, or nil if there was none.
	place *critical.Record
}

// atOnceWithin is the time after the first packet of a flow within which the flow counts as
// accepted at once: placing takes milliseconds, and a refused flow is tried again after a second.
const atOnceWithin = 250 * time.Millisecond

// accepted reports whether the flow was promised its rate at some time, and whether it was so at
// once.
func (o *qosOutcome) accepted() (ever, atOnce bool) {
	if o.place == nil || o.place.Accepted.IsZero() {
		return false, false
	}
	return true, o.place.Accepted.Sub(o.place.Since) < atOnceWithin && o.place.Accepted.Before(o.log.Begin.Add(atOnceWithin))
}

// settled is the time after its first packet in which TCP gets to fill the link. recovery is the
// time that TCP gets after meters have limited it, because it may be waiting for a retransmission
// timeout.
const (
	settled  = time.Second
	recovery = 2 * time.Second
)

// steady returns the flow's mean goodput in Mbit/s once it has settled.
func (o *qosOutcome) steady() float64 {
	v, _ := o.log.After(settled)
	return v
}

// keptPercent returns the percentage of its promised rate that the flow has reached, in frames,
// from the time at which it had settled until its end. It returns false if this was less than two
// seconds.
func (o *qosOutcome) keptPercent() (float64, bool) {
	ever, atOnce := o.accepted()
	if !ever {
		return 0, false
	}
	from := settled
	if !atOnce {
		from = o.place.Accepted.Add(recovery).Sub(o.log.Begin)
	}
	if o.log.Took-from < 2*time.Second {
		return 0, false
	}
	v, ok := o.log.After(from)
	return 100 * v * 1e6 / payloadShare / required, ok
}

// qosNetwork describes a network of switches, hosts and links.
type qosNetwork struct {
	name   string
	trunk  float64     // rate of links between switches in bit/s
	trunks [][2]string // links between switches
	hosts  [][2]string // hosts and their switches
}

func (q *qosNetwork) topology() lab.Topology {
	t := lab.Topology{Name: q.name}
	known := map[string]bool{}
	for _, l := range q.trunks {
		known[l[0]], known[l[1]] = true, true
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		t.Switches = append(t.Switches, lab.Switch{Name: name})
	}
	for _, h := range q.hosts {
		t.Hosts = append(t.Hosts, plain(lab.Host{Name: h[0]}))
	}
	for _, l := range slices.Concat(q.trunks, q.hosts) {
		t.Links = append(t.Links, lab.Link{Name: l[0] + "-" + l[1], A: lab.End{Node: l[0]}, B: lab.End{Node: l[1]}})
	}
	return t
}

// rate returns the rate of a link in bit/s.
func (q *qosNetwork) rate(l lab.Link) float64 {
	if slices.Contains(q.hosts, [2]string{l.A.Node, l.B.Node}) {
		return required
	}
	return q.trunk
}

// up builds the network, runs f, and takes everything down again.
func (q *qosNetwork) up(ctx context.Context, env *Env, f func(context.Context, *lab.Lab) error) error {
	return env.withLab(ctx, q.topology(), func(ctx context.Context, l *lab.Lab) error {
		if err := testbed.ShapeLinks(ctx, l, q.rate); err != nil {
			return err
		}
		return f(ctx, l)
	})
}

// controlled runs f with a controller. The controller reads counters every five seconds of the
// experiment's time, but at most once a second.
func (q *qosNetwork) controlled(ctx context.Context, env *Env, l *lab.Lab, factor int, f func(context.Context, *testbed.Network) error) (err error) {
	interval := max(5*time.Second/time.Duration(factor), time.Second)
	n, err := testbed.DeployNetwork(ctx, testbed.NetworkOptions{Lab: l, Binary: env.Binary, LogDir: env.Dir, Interval: interval, Rate: q.rate})
	if err != nil {
		return err
	}
	defer func() {
		if cerr := n.Close(); err == nil {
			err = cerr
		}
	}()
	// Links and hosts are found in this time, and effects of an earlier run expire.
	if err := tasks.Sleep(ctx, settleRuns); err != nil {
		return err
	}
	return f(ctx, n)
}

// settleRuns is the time between two runs on one network.
const settleRuns = 5 * time.Second

// runFlows carries all flows over a network and returns the results.
func runFlows(ctx context.Context, l *lab.Lab, n *testbed.Network, flows []qosFlow) ([]*qosOutcome, error) {
	if err := introduceHosts(ctx, l, flows); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := make([]*qosOutcome, len(flows))
	var running sync.WaitGroup
	for i, f := range flows {
		out[i] = &qosOutcome{qosFlow: f}
		running.Go(func() {
			if err := out[i].run(ctx, l); err != nil {
				cancel(fmt.Errorf("flow %d from %s to %s: %w", f.number, f.from, f.to, err))
			}
		})
	}
	watching, stop := context.WithCancel(ctx)
	places := make(chan map[netip.AddrPort]*critical.Record, 1)
	go func() { places <- watchPlaces(watching, n) }()
	running.Wait()
	stop()
	seen := <-places
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	for _, o := range out {
		o.place = seen[netip.AddrPortFrom(l.Host(o.to).Addr(), criticalPort)]
		if !o.critical {
			o.place = nil
		}
	}
	return out, nil
}

// introduceHosts makes the two hosts of each flow exchange a packet, so that the controller knows
// them.
func introduceHosts(ctx context.Context, l *lab.Lab, flows []qosFlow) error {
	var all sync.WaitGroup
	errs := make(chan error, len(flows))
	for _, f := range flows {
		all.Go(func() {
			errs <- testbed.Poll(ctx, fmt.Sprintf("the way from %s to %s", f.from, f.to), func() error {
				return l.Host(f.from).Command(ctx, "ping", "-c1", "-W1", l.Host(f.to).Addr().String()).Run()
			})
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (o *qosOutcome) run(ctx context.Context, l *lab.Lab) (err error) {
	if err := tasks.Sleep(ctx, o.start); err != nil {
		return err
	}
	port := uint16(plainPort)
	if o.critical {
		port = criticalPort
	}
	o.log, err = testbed.Bulk{
		From: l.Host(o.from), To: l.Host(o.to), Addr: netip.AddrPortFrom(l.Host(o.to).Addr(), port), Bytes: o.bytes, Time: o.lasts,
	}.Run(ctx)
	return err
}

// watchPlaces requests the places of the flows until it is stopped. It returns the latest place of
// each flow by the flow's destination, because each host receives only one flow.
func watchPlaces(ctx context.Context, n *testbed.Network) map[netip.AddrPort]*critical.Record {
	seen := map[netip.AddrPort]*critical.Record{}
	for tasks.Sleep(ctx, 200*time.Millisecond) == nil {
		var all []critical.Record
		if err := n.Get(ctx, "/api/v1/qos/flows", &all); err != nil {
			continue // the next answer may succeed
		}
		for _, r := range all {
			if to, ok := destination(r.Flow); ok {
				seen[to] = &r
			}
		}
	}
	return seen
}

// destination parses "tcp SOURCE > DESTINATION".
func destination(flow string) (netip.AddrPort, bool) {
	var proto, from, to string
	if n, _ := fmt.Sscanf(flow, "%s %s > %s", &proto, &from, &to); n != 3 {
		return netip.AddrPort{}, false
	}
	a, err := netip.ParseAddrPort(to)
	return a, err == nil
}

// defineCritical makes the flows to the critical port critical. They count as ended after two
// seconds of silence, so that no reading shows traffic of a flow that is not known any more. When
// they close, their promised rate becomes available to others. With once, as in the dissertation, a
// flow that is not accepted when it begins is never accepted.
func defineCritical(ctx context.Context, n *testbed.Network, once bool) error {
	return n.Do(ctx, http.MethodPost, "/api/v1/qos/critical", critical.Spec{
		Name: "experiment", Rate: required, Match: match.Flow{TCPDst: match.Text(fmt.Sprint(criticalPort))}, IdleTimeout: "2s", Once: once,
	}, nil)
}
