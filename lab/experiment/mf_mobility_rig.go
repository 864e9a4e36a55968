package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// mobilitySteady is how long a host of names needs after it has lost its only link to return to its
// initial state. It checks its address four times a second, and it opens a failed link at
// increasing intervals unless the link has lasted 10 s.
const mobilitySteady = 14 * time.Second

// mobilityRig is one of the labs of the experiment.
type mobilityRig struct {
	peers       *peersRig
	topology    lab.Topology
	near, far   lab.MobilityDomain // of the device's first and second link; they may be the same
	networks    []testbed.HandoverNetwork
	startHosts  func(context.Context) error // starts what carries chunks to names
	programs    []*testbed.Daemon
	controllers []*testbed.Deployment
	dir         string        // of the state of name services and of the storage node, removed at the end
	absence     time.Duration // how long the device is away in this run
	kept        int           // chunks that the storage node had shortly before the device came back last
}

// measureAll measures all moves that happen in this lab: first the ways of a device with two
// addresses, then those with handover.
func (rig *mobilityRig) measureAll(ctx context.Context, moves []mobilityMove, runs int, results mobilityResults) (err error) {
	if rig.dir, err = os.MkdirTemp("", "sluice-mobility-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(rig.dir)) }()
	if err := rig.withoutHandover(ctx, func(ctx context.Context) error {
		for _, m := range moves {
			if err := rig.measureMove(ctx, m, m.ways, runs, results); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if len(rig.networks) > 1 {
		if err := rig.peers.lab.SetLink(ctx, peeringLink, true); err != nil {
			return err
		}
	}
	return rig.peers.withHandover(ctx, rig.networks, func(ctx context.Context) error {
		for _, m := range moves {
			m.adapt, m.restore = nil, nil
			if err := rig.measureMove(ctx, m, m.served, runs, results); err != nil {
				return err
			}
		}
		return nil
	})
}

// withoutHandover gives the device two addresses, starts the hosts of names, and calls f.
func (rig *mobilityRig) withoutHandover(ctx context.Context, f func(context.Context) error) (err error) {
	defer func() { err = errors.Join(err, rig.stop()) }()
	if err := rig.startHosts(ctx); err != nil {
		return err
	}
	return f(ctx)
}

// addresses gives the device an address on each of its links.
func (rig *mobilityRig) addresses(ctx context.Context) (err error) {
	rig.peers.first, rig.peers.second, err = twoAddresses(ctx, rig.peers.lab, rig.near, rig.far)
	return err
}

// stop ends the hosts of names and the controllers.
func (rig *mobilityRig) stop() error {
	for i := len(rig.programs) - 1; i >= 0; i-- {
		rig.programs[i].Stop()
	}
	var errs []error
	for _, c := range rig.controllers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// startProgram runs "sluice mf" at a host until stop. what distinguishes its log.
func (rig *mobilityRig) startProgram(ctx context.Context, host, what string, args ...string) error {
	env := rig.peers.env
	d, err := testbed.StartDaemon(ctx, rig.peers.lab.Host(host), filepath.Join(env.Dir, "mf-"+what+".log"), env.Binary, append([]string{"mf"}, args...)...)
	if err == nil {
		rig.programs = append(rig.programs, d)
	}
	return err
}

// startHost runs a host of names. what distinguishes its socket and its log.
func (rig *mobilityRig) startHost(ctx context.Context, host, what string, args ...string) error {
	return rig.startProgram(ctx, host, what, append([]string{"host", "--socket", rig.socket(what)}, args...)...)
}

func (rig *mobilityRig) socket(what string) string {
	return filepath.Join(rig.peers.env.Dir, "mf-"+what+".sock")
}

// names returns a way that sends chunks to a name, from one host of names to another.
func (rig *mobilityRig) names(name, from, to string, service frame.Service) mobilityWay {
	return mobilityWay{name: name, names: true, start: func(ctx context.Context, o testbed.PeerOptions) (testbed.Peer, error) {
		return testbed.StartNames(ctx, o, rig.socket(from), rig.socket(to), service)
	}}
}

// moving returns the ways of applications that change to the device's second address.
func (rig *mobilityRig) moving() []mobilityWay {
	talks := func(ctx context.Context, o testbed.PeerOptions) (testbed.Peer, error) {
		o.Talks = true
		return testbed.StartQUIC(ctx, o)
	}
	return []mobilityWay{{name: "MPTCP, both links used", start: testbed.StartMPTCP}, {name: "QUIC, client talks too", start: talks}, {name: "TCP, connects anew", start: testbed.StartTCP}}
}

// staying returns the ways of applications that wait for the device's return.
func (rig *mobilityRig) staying() []mobilityWay {
	patient := func(start func(context.Context, testbed.PeerOptions) (testbed.Peer, error)) func(context.Context, testbed.PeerOptions) (testbed.Peer, error) {
		return func(ctx context.Context, o testbed.PeerOptions) (testbed.Peer, error) {
			o.Watch = time.Hour
			return start(ctx, o)
		}
	}
	return []mobilityWay{{name: "QUIC, keeps its connection", start: patient(testbed.StartQUIC)}, {name: "TCP, keeps its connection", start: patient(testbed.StartTCP)}}
}

// carried returns the ways with handover and the given names.
func (rig *mobilityRig) carried(names ...string) (ways []mobilityWay) {
	for _, way := range handoverWays() {
		if slices.Contains(names, way.name) {
			ways = append(ways, mobilityWay{name: way.name, start: func(ctx context.Context, o testbed.PeerOptions) (testbed.Peer, error) {
				return rig.peers.startCarried(ctx, way, o)
			}})
		}
	}
	return ways
}

// measureMove measures conversations of each way with the device during a move.
func (rig *mobilityRig) measureMove(ctx context.Context, m mobilityMove, ways []mobilityWay, runs int, results mobilityResults) error {
	env := rig.peers.env
	for _, way := range ways {
		env.Step("%s, %s", m.name, way.name)
		cell := &mobilityCell{}
		results[mobilityKey(m, way)] = cell
		for run := range runs {
			rig.kept, rig.absence = 0, absence(run, runs)
			r, err := rig.once(ctx, m, way)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", m.name, way.name, err)
			}
			cell.runs.add(r)
			cell.kept = append(cell.kept, float64(rig.kept))
			away := time.Duration(0)
			if m.away {
				away = rig.absence
			}
			if err := rig.peers.raw.Row(m.name, way.name, run+1, r.gap, r.lost, r.doubled, r.dead, r.late, away, rig.kept); err != nil {
				return err
			}
		}
		env.Logf("median %.0f ms, worst %.0f ms; %d lost", median(cell.runs.gaps), quantile(cell.runs.gaps, 1), cell.runs.lost)
	}
	return nil
}

// once starts a conversation, lets the move happen to the device, and undoes it.
func (rig *mobilityRig) once(ctx context.Context, m mobilityMove, way mobilityWay) (r roamRun, err error) {
	p := rig.peers
	p.port++
	p.backlog = 0
	if m.away {
		p.backlog = int(float64(m.rate) * lateLimit.Seconds())
	}
	peer, err := way.start(ctx, testbed.PeerOptions{
		Device: p.lab.Host(theDevice), Server: p.lab.Host(p.domain.Server),
		First: p.first, Second: p.second, Listen: netip.AddrPortFrom(p.domain.ServerAddr, p.port), Rate: m.rate, Watch: watchLimit,
	})
	if err != nil {
		return r, err
	}
	if r, err = p.kill(ctx, peer, false, both(m.do, m.adapt)); err != nil {
		peer.Stop()
	}
	if m.away {
		r.gap, r.late = max(r.gap-rig.absence, 0), max(r.late-rig.absence, 0)
	}
	if err := errors.Join(err, both(m.undo, m.restore)(ctx)); err != nil {
		return r, err
	}
	if way.names {
		if err := tasks.Sleep(ctx, m.steady); err != nil {
			return r, err
		}
	}
	return r, awaitReachable(ctx, p.lab.Host(theDevice), p.first, p.domain.ServerAddr)
}

// both returns a function that calls one function and then another, which may be nil.
func both(first, second func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := first(ctx); err != nil || second == nil {
			return err
		}
		return second(ctx)
	}
}

// at returns a function that runs programs at the device.
func (rig *mobilityRig) at(lines ...string) func(context.Context) error {
	return func(ctx context.Context) error { return runAll(ctx, rig.peers.lab.Host(theDevice), lines...) }
}

// changeLink returns a move for which the device's first link goes down with its address, and the
// device goes on with the second link and the address there.
func (rig *mobilityRig) changeLink(name string) mobilityMove {
	return mobilityMove{
		name: name, rig: rig, rate: pulseRate, steady: mobilitySteady,
		do:    rig.at("ip link set eth0 down"),
		undo:  rig.at("ip link set eth0 up"),
		adapt: rig.at(fmt.Sprintf("ip route replace default via %v dev eth1", rig.far.GatewayAddr)),
		restore: rig.at(fmt.Sprintf("ip route replace default via %v dev eth0", rig.near.GatewayAddr),
			fmt.Sprintf("ip route replace %v dev eth0 src %v table 101", rig.near.Prefix, hostOf(rig.near.Prefix, 101)),
			fmt.Sprintf("ip route replace default via %v dev eth0 table 101", rig.near.GatewayAddr)),
	}
}
