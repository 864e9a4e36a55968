package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
)

// mobilitySteady is how long a host of names needs after a change of its address to return to its
// initial state. It checks its address four times a second, and it opens a failed link at
// increasing intervals unless the link has lasted 10 s.
const mobilitySteady = 14 * time.Second

// mobilityMost bounds the median time without chunks to a name when the device moves within a
// domain, and mobilityMostFar the median when the device gets another address.
const mobilityMost, mobilityMostFar = time.Second, 3 * time.Second

func mfMobility() Experiment {
	return Experiment{
		Name:     "mf-mobility",
		Title:    "How long delivery to a name stops when its host moves, beside TCP, MPTCP and QUIC",
		Question: "How much of what is sent to a name is lost while its host changes its link or its network, and how long does delivery stop?",
		Source:   "MobilityFirst thesis 2013, section 3.5, where it was not measured",
		Varies:   []string{"move"},
		Run:      runMFMobility,
	}
}

// mobilityMove is an event that happens to the device.
type mobilityMove struct {
	name     string
	do, undo func(context.Context) error
}

// mobilityWay is a way to send to the device.
type mobilityWay struct {
	name  string
	names bool
	start func(context.Context, testbed.PeerOptions) (testbed.Peer, error)
}

// mobilityRig is the lab of the experiment.
type mobilityRig struct {
	*peersRig
	hosts []*testbed.Daemon
}

func runMFMobility(ctx context.Context, env *Env) (*Result, error) {
	runs := pick(env.Scale, 2, 10, 30)
	raw, err := env.CSV("moves", "move", "way", "run", "gap_seconds", "lost", "doubled", "dead")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	o := lab.MobilityOptions{Levels: 2, Radio: accessLine}
	rig := &mobilityRig{peersRig: &peersRig{env: env, domain: o.Domain(), raw: raw, port: peersPort}}
	moves, err := chosen(env.Only, "move", rig.moves(), func(m mobilityMove) string { return m.name })
	if err != nil {
		return nil, err
	}
	r := &Result{Network: fmt.Sprintf("a device with two access links of %.0f Mbit/s and %v each way, to two edge switches under one root, which learn addresses; the router and a server behind it send to it", accessLine.Rate/1e6, accessLine.Delay)}
	t := Table{Title: fmt.Sprintf("Longest silence at the device in ms, %d runs each", runs), Columns: []string{"move", "way", "median", "worst", meanColumn, "lost", "doubled", "dead"}}
	err = env.withLab(ctx, lab.Mobility("mfmobility", o), func(ctx context.Context, l *lab.Lab) (err error) {
		rig.lab = l
		if rig.first, rig.second, err = twoAddresses(ctx, l, rig.domain); err != nil {
			return err
		}
		defer rig.stop()
		if err := rig.startHosts(ctx); err != nil {
			return err
		}
		env.Steps(len(moves) * len(rig.ways(moves[0])))
		for _, m := range moves {
			for _, way := range rig.ways(m) {
				env.Step("%s, %s", m.name, way.name)
				cell, err := rig.measure(ctx, m, way, runs)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", m.name, way.name, err)
				}
				env.Logf("median %.0f ms, worst %.0f ms; %d lost", median(cell.gaps), quantile(cell.gaps, 1), cell.lost)
				t.Add(m.name, way.name, ms1(median(cell.gaps)), ms1(quantile(cell.gaps, 1)), meanText(cell.gaps, 1, 1), cell.lost, cell.doubled, cell.dead)
				if way.names {
					rig.claim(r, m, way, cell)
				}
			}
		}
		return nil
	})
	r.Tables = append(r.Tables, t)
	r.Note("A silence is the time between two arrivals beyond the server's own spacing of 1 ms; the wire takes %v.", accessLine.Delay)
	r.Note("Names find out by themselves: their hosts have default settings. The kernel does so for MPTCP; applications on QUIC and TCP take a silence of %v for the link's death, and know which address they have beside. TCP's application says which message it expects when it connects anew. What Sluice's handover does to a device is in handover-peers.", watchLimit)
	return r, err
}

func (rig *mobilityRig) claim(r *Result, m mobilityMove, way mobilityWay, cell *roamCell) {
	r.Claim(cell.lost+cell.doubled+cell.dead == 0, fmt.Sprintf("%s, %s: everything arrives once", m.name, way.name), "%d lost, %d doubled, %d of %d runs dead", cell.lost, cell.doubled, cell.dead, len(cell.gaps))
	most := mobilityMost
	if m.name == anotherNetwork {
		most = mobilityMostFar
	}
	r.Claim(median(cell.gaps) <= inMS(most), fmt.Sprintf("%s, %s: median silence at most %v", m.name, way.name, most), "%.0f ms", median(cell.gaps))
}

const anotherNetwork = "another address"

// moves returns the events: a link that fails while the device has another one, and a link that
// goes down with its address where the device gets another one.
func (rig *mobilityRig) moves() []mobilityMove {
	at := func(lines ...string) func(context.Context) error {
		return func(ctx context.Context) error { return runAll(ctx, rig.lab.Host(theDevice), lines...) }
	}
	gateway := rig.domain.GatewayAddr
	return []mobilityMove{
		{
			"another link",
			func(ctx context.Context) error { return rig.lab.SetLinkParams(ctx, accessLink(0), lossy(accessLine)) },
			func(ctx context.Context) error { return rig.lab.SetLinkParams(ctx, accessLink(0), accessLine) },
		},
		{
			anotherNetwork,
			at("ip link set eth0 down", fmt.Sprintf("ip route replace default via %v dev eth1", gateway)),
			at("ip link set eth0 up", fmt.Sprintf("ip route replace default via %v dev eth0", gateway),
				fmt.Sprintf("ip route replace %v dev eth0 src %v table 101", rig.domain.Prefix, hostOf(rig.domain.Prefix, 101)),
				fmt.Sprintf("ip route replace default via %v dev eth0 table 101", gateway)),
		},
	}
}

// ways returns the ways that are measured with an event. Names use a link that both hosts share or,
// if the device gets another address, UDP and the name service.
func (rig *mobilityRig) ways(m mobilityMove) []mobilityWay {
	names := mobilityWay{"names, by Ethernet", true, rig.startByEthernet}
	if m.name == anotherNetwork {
		names = mobilityWay{"names, by UDP and the name service", true, func(ctx context.Context, o testbed.PeerOptions) (testbed.Peer, error) {
			return testbed.StartNames(ctx, o, rig.socket(rig.domain.Server), rig.socket("far"))
		}}
	}
	talks := func(ctx context.Context, o testbed.PeerOptions) (testbed.Peer, error) {
		o.Talks = true
		return testbed.StartQUIC(ctx, o)
	}
	return []mobilityWay{names, {"MPTCP, both links used", false, testbed.StartMPTCP}, {"QUIC, client talks too", false, talks}, {"TCP, connects anew", false, testbed.StartTCP}}
}

// startByEthernet starts a conversation between names over the device's first link, which is the
// only one at that time.
func (rig *mobilityRig) startByEthernet(ctx context.Context, o testbed.PeerOptions) (testbed.Peer, error) {
	if err := rig.lab.SetLinkParams(ctx, accessLink(1), lossy(accessLine)); err != nil {
		return nil, err
	}
	p, err := testbed.StartNames(ctx, o, rig.socket(rig.domain.Gateway), rig.socket(theDevice))
	if failed := rig.lab.SetLinkParams(ctx, accessLink(1), accessLine); failed != nil && err == nil {
		p.Stop()
		return nil, failed
	}
	return p, err
}

func (rig *mobilityRig) socket(host string) string {
	return filepath.Join(rig.env.Dir, "mf-"+host+".sock")
}

// startHosts starts hosts of MobilityFirst, and a name service at the server. The hosts at the
// router and on the device share links. The one at the server and a second one on the device do
// not.
func (rig *mobilityRig) startHosts(ctx context.Context) error {
	names := netip.AddrPortFrom(rig.domain.ServerAddr, 5001).String()
	start := func(host, what string, args ...string) error {
		d, err := testbed.StartDaemon(ctx, rig.lab.Host(host), filepath.Join(rig.env.Dir, "mf-"+what+".log"), rig.env.Binary, append([]string{"mf"}, args...)...)
		if err == nil {
			rig.hosts = append(rig.hosts, d)
		}
		return err
	}
	device, far := []string{"--interface", "eth0", "--interface", "eth1"}, []string{"--udp", "5028", "--names", names}
	run := func(host, what string, args []string) error {
		return start(host, what, append([]string{"host", "--socket", rig.socket(what)}, args...)...)
	}
	return errors.Join(start(rig.domain.Server, "names", "gnrs", "--listen", names, "--dir", filepath.Join(rig.env.Dir, "mf-names")),
		run(rig.domain.Gateway, rig.domain.Gateway, []string{"--interface", "eth0"}), run(theDevice, theDevice, device),
		run(rig.domain.Server, rig.domain.Server, far), run(theDevice, "far", far))
}

func (rig *mobilityRig) stop() {
	for _, d := range rig.hosts {
		d.Stop()
	}
}

// measure measures conversations with the device during an event.
func (rig *mobilityRig) measure(ctx context.Context, m mobilityMove, way mobilityWay, runs int) (*roamCell, error) {
	cell := &roamCell{}
	for run := range runs {
		r, err := rig.once(ctx, m, way)
		if err != nil {
			return nil, err
		}
		cell.add(r)
		if err := rig.raw.Row(m.name, way.name, run+1, r.gap, r.lost, r.doubled, r.dead); err != nil {
			return nil, err
		}
	}
	return cell, nil
}

// once starts a conversation, lets the event happen to the device, and undoes it.
func (rig *mobilityRig) once(ctx context.Context, m mobilityMove, way mobilityWay) (r roamRun, err error) {
	rig.port++
	p, err := way.start(ctx, testbed.PeerOptions{
		Device: rig.lab.Host(theDevice), Server: rig.lab.Host(rig.domain.Server),
		First: rig.first, Second: rig.second, Listen: netip.AddrPortFrom(rig.domain.ServerAddr, rig.port), Rate: pulseRate, Watch: watchLimit,
	})
	if err != nil {
		return r, err
	}
	if r, err = rig.kill(ctx, p, false, m.do); err != nil {
		p.Stop()
	}
	if err := errors.Join(err, m.undo(ctx)); err != nil {
		return r, err
	}
	if way.names && m.name == anotherNetwork {
		if err := tasks.Sleep(ctx, mobilitySteady); err != nil {
			return r, err
		}
	}
	return r, awaitReachable(ctx, rig.lab.Host(theDevice), rig.first, rig.domain.ServerAddr)
}
