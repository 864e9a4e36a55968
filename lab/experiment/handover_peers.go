package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/handover"
)

const (
	// pulseRate is the number of messages a second that the server sends.
	pulseRate = 1000
	// watchLimit is the time without messages after which an application on TCP or QUIC takes its
	// link for dead: four times the lateness of a packet on an idle radio.
	watchLimit = 100 * time.Millisecond
	// notice is how long before the failure of its link a device is told of it.
	notice = 500 * time.Millisecond
	// peersStill is how long a conversation runs before its link fails.
	peersStill = time.Second
	// lateLimit is the time that a message may take before it counts as late.
	lateLimit = 200 * time.Millisecond
	// giveUp is the time without messages after which a conversation counts as dead.
	giveUp = 15 * time.Second
)

// peersPort is the server's first port; every run has a port of its own.
const peersPort = 7000

func handoverPeers() Experiment {
	return Experiment{
		Name:     "handover-peers",
		Title:    "How long delivery stops when the first of two access links dies: handover, MPTCP, QUIC, TCP",
		Question: "Which interruptions does the network's handover avoid that today's transports do not?",
		Run:      runHandoverPeers,
	}
}

// roamWay is one way for a conversation to survive the failure of its first link.
type roamWay struct {
	name  string
	start func(context.Context, testbed.PeerOptions) (testbed.Peer, error)
	with  func(*testbed.PeerOptions)
	// policy is the policy of the handover service; it is empty for ways without that service.
	policy string
	// packets means that UDP packets are sent, and not messages over TCP.
	packets bool
	// before is what a preliminary study measured, in ms.
	before string
}

// peerWays returns the ways of a device with an address on each link and without handover.
func peerWays() []roamWay {
	plain := func(*testbed.PeerOptions) {}
	return []roamWay{
		{name: "MPTCP, both links used", start: testbed.StartMPTCP, with: plain, before: "204"},
		{name: "MPTCP, second as backup", start: testbed.StartMPTCP, with: func(o *testbed.PeerOptions) { o.Backup = true }},
		{name: "QUIC, client talks too", start: testbed.StartQUIC, with: func(o *testbed.PeerOptions) { o.Talks = true }, before: "208"},
		{name: "QUIC, client only listens", start: testbed.StartQUIC, with: plain, before: "439"},
		{name: "TCP, connects anew", start: testbed.StartTCP, with: plain},
	}
}

// handoverWays returns the ways with handover: plain TCP and UDP, which do not notice the move.
func handoverWays() []roamWay {
	return []roamWay{
		{name: "handover, saving, TCP", policy: "saving"},
		{name: "handover, saving, UDP", policy: "saving", packets: true},
		{name: seamlessTCP, policy: "seamless"},
		{name: seamlessUDP, policy: "seamless", packets: true},
	}
}

const (
	seamlessTCP = "handover, seamless, TCP"
	seamlessUDP = "handover, seamless, UDP"
)

// roamRun holds the effects of one failure of the link on one conversation.
type roamRun struct {
	gap           time.Duration
	still         time.Duration // longest gap before, which the machine itself causes
	late          time.Duration // until messages are in time again; 0 if none has been late
	lost, doubled int
	dead          bool
}

// roamCell holds the runs of one way, with or without notice.
type roamCell struct {
	gaps, still   []float64 // ms
	late          []float64 // ms
	lost, doubled int
	dead          int
}

func (c *roamCell) add(r roamRun) {
	c.gaps = append(c.gaps, inMS(r.gap))
	c.still = append(c.still, inMS(r.still))
	c.late = append(c.late, inMS(r.late))
	c.lost += r.lost
	c.doubled += r.doubled
	if r.dead {
		c.dead++
	}
}

// peersRig is the lab of the experiment.
type peersRig struct {
	env           *Env
	lab           *lab.Lab
	domain        lab.MobilityDomain
	raw           *CSV
	first, second netip.Addr
	port          uint16
	mobile        *testbed.Mobile // nil until the device has one address
	// backlog limits the messages that may be under way when delivery counts as resumed; 0 means no
	// limit.
	backlog int
}

func runHandoverPeers(ctx context.Context, env *Env) (*Result, error) {
	runs := pick(env.Scale, 2, 10, 30)
	raw, err := env.CSV("roam", "way", "announced", "run", "gap_seconds", "gap_before_seconds", "lost", "doubled", "dead")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	alone, served := peerWays(), handoverWays()
	ways := slices.Concat(alone, served)
	o := lab.MobilityOptions{Levels: 2, Radio: accessLine}
	rig := &peersRig{env: env, domain: o.Domain(), raw: raw, port: peersPort}
	r := &Result{Network: fmt.Sprintf("a device with two access links of %.0f Mbit/s and %v each way, to two edge switches under one root; the server is behind a router", accessLine.Rate/1e6, accessLine.Delay)}
	cells := map[string]*roamCell{}
	env.Steps(2 * len(ways))
	err = env.withLab(ctx, lab.Mobility("rivals", o), func(ctx context.Context, l *lab.Lab) (err error) {
		rig.lab = l
		if err := learnAddresses(ctx, l); err != nil {
			return err
		}
		if rig.first, rig.second, err = twoAddresses(ctx, l, rig.domain, rig.domain); err != nil {
			return err
		}
		if err := rig.measureAll(ctx, alone, runs, cells); err != nil {
			return err
		}
		return rig.withHandover(ctx, []testbed.HandoverNetwork{{Name: "home", Network: rig.domain}}, func(ctx context.Context) error {
			return rig.measureAll(ctx, served, runs, cells)
		})
	})
	if err != nil {
		return nil, err
	}
	peersTable(r, ways, cells, runs)
	return r, nil
}

// withHandover starts the controller of each network and the device's daemon, which gives the device
// one address of the first network, and then calls f.
func (rig *peersRig) withHandover(ctx context.Context, networks []testbed.HandoverNetwork, f func(context.Context) error) (err error) {
	if err := oneAddress(ctx, rig.lab); err != nil {
		return err
	}
	d, err := testbed.DeployHandover(ctx, testbed.HandoverOptions{
		Lab: rig.lab, Binary: rig.env.Binary, LogDir: rig.env.Dir, Domains: networks,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	for _, domain := range d.Domains {
		for _, way := range handoverWays() {
			if err := domain.PutClass(ctx, way.policy, handover.ClassSpec{Policy: way.policy}); err != nil {
				return err
			}
		}
	}
	rig.mobile, err = testbed.StartMobile(ctx, testbed.MobileOptions{
		Host: rig.lab.Host(theDevice), Binary: rig.env.Binary, LogDir: rig.env.Dir, Home: d.Domains[0], Class: "saving",
		Device: theDevice, Interfaces: []string{"eth0", "eth1"},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rig.mobile.Close()) }()
	rig.first = rig.mobile.Addr()
	return f(ctx)
}

// conversation is a stream or download on a device that its daemon moves.
type conversation interface {
	LastArrival() time.Time
	Count() (sent, received int)
	Stop() *testbed.StreamLog
}

// carriedPeer is an application that does not notice moves, on a device that is moved by its
// daemon.
type carriedPeer struct {
	conversation
	move func(context.Context) error
}

// Move makes the daemon move the device.
func (p carriedPeer) Move(ctx context.Context) error { return p.move(ctx) }

// startCarried starts a conversation from the device's one address, over the first link.
func (rig *peersRig) startCarried(ctx context.Context, way roamWay, o testbed.PeerOptions) (testbed.Peer, error) {
	if err := rig.mobile.SetClass(ctx, way.policy); err != nil {
		return nil, err
	}
	if err := rig.mobile.Prefer(ctx, "eth0"); err != nil {
		return nil, err
	}
	if err := awaitReachable(ctx, rig.lab.Host(theDevice), rig.first, rig.domain.ServerAddr); err != nil {
		return nil, err
	}
	var p conversation
	var err error
	if way.packets {
		p, err = testbed.StartStream(ctx, testbed.StreamOptions{
			Sender: o.Server, Receiver: o.Device, To: netip.AddrPortFrom(rig.first, o.Listen.Port()), Rate: o.Rate,
		})
	} else {
		o.Watch = time.Hour // so that the application does not react itself
		p, err = testbed.StartTCP(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	return carriedPeer{p, func(ctx context.Context) error {
		_, err := rig.mobile.Move(ctx, "eth1")
		return err
	}}, nil
}

func (rig *peersRig) measureAll(ctx context.Context, ways []roamWay, runs int, cells map[string]*roamCell) error {
	for _, way := range ways {
		if err := rig.measure(ctx, way, runs, cells); err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
	}
	return nil
}

func cellName(way string, announced bool) string { return fmt.Sprint(way, "/", announced) }

// measure measures a way whose link fails, without and with notice.
func (rig *peersRig) measure(ctx context.Context, way roamWay, runs int, cells map[string]*roamCell) error {
	for _, announced := range []bool{false, true} {
		rig.env.Step("%s, %s", way.name, how(announced))
		cell := &roamCell{}
		cells[cellName(way.name, announced)] = cell
		for run := range runs {
			r, err := rig.once(ctx, way, announced)
			if err != nil {
				return err
			}
			cell.add(r)
			if err := rig.raw.Row(way.name, announced, run+1, r.gap, r.still, r.lost, r.doubled, r.dead); err != nil {
				return err
			}
		}
		rig.env.Logf("gap: median %.1f ms, worst %.1f ms; %d lost", median(cell.gaps), quantile(cell.gaps, 1), cell.lost)
	}
	return nil
}

func how(announced bool) string {
	if announced {
		return "the device is told before"
	}
	return "the link dies silently"
}

// once starts a conversation, lets its first link fail, and restores the link.
func (rig *peersRig) once(ctx context.Context, way roamWay, announced bool) (r roamRun, err error) {
	rig.port++
	o := testbed.PeerOptions{
		Device: rig.lab.Host(theDevice), Server: rig.lab.Host(rig.domain.Server),
		First: rig.first, Second: rig.second, Listen: netip.AddrPortFrom(rig.domain.ServerAddr, rig.port),
		Rate: pulseRate, Watch: watchLimit,
	}
	p, err := rig.start(ctx, way, o)
	if err != nil {
		return r, err
	}
	r, err = rig.kill(ctx, p, announced, func(ctx context.Context) error { return rig.lab.SetLinkParams(ctx, accessLink(0), lossy(accessLine)) })
	if err != nil {
		p.Stop()
		return r, err
	}
	if err := rig.lab.SetLinkParams(ctx, accessLink(0), accessLine); err != nil {
		return r, err
	}
	return r, awaitReachable(ctx, rig.lab.Host(theDevice), rig.first, rig.domain.ServerAddr)
}

func (rig *peersRig) start(ctx context.Context, way roamWay, o testbed.PeerOptions) (testbed.Peer, error) {
	if way.policy != "" {
		return rig.startCarried(ctx, way, o)
	}
	way.with(&o)
	return way.start(ctx, o)
}

// kill calls die, which makes the first link fail, during a conversation, and waits until messages
// arrive again, or for giveUp.
func (rig *peersRig) kill(ctx context.Context, p testbed.Peer, announced bool, die func(context.Context) error) (r roamRun, err error) {
	if err := tasks.Sleep(ctx, peersStill); err != nil {
		return r, err
	}
	from := time.Now()
	if announced {
		if err := p.Move(ctx); err != nil {
			return r, err
		}
		if err := tasks.Sleep(ctx, notice-time.Since(from)); err != nil {
			return r, err
		}
	}
	if err := die(ctx); err != nil {
		return r, err
	}
	r.dead, err = rig.waitDelivery(ctx, p)
	if err != nil {
		return r, err
	}
	to := time.Now()
	log := p.Stop()
	report := log.Between(from, to)
	// This span ends before the move begins, so that it does not include any of it.
	r.still = log.Between(from.Add(-peersStill/2), from.Add(-peersStill/20)).Gap
	r.gap, r.lost, r.doubled = report.Gap, report.Lost, report.Doubled
	if last := log.LastLate(from, to, lateLimit); !last.IsZero() {
		r.late = last.Sub(from)
	}
	return r, nil
}

// waitDelivery waits until messages have been arriving for half a second after the last one that
// was in flight when the link failed.
func (rig *peersRig) waitDelivery(ctx context.Context, p testbed.Peer) (dead bool, err error) {
	if err := tasks.Sleep(ctx, 50*time.Millisecond); err != nil {
		return false, err
	}
	_, before := p.Count()
	deadline := time.Now().Add(giveUp)
	for time.Now().Before(deadline) {
		if err := tasks.Sleep(ctx, 20*time.Millisecond); err != nil {
			return false, err
		}
		sent, received := p.Count()
		resumed := received-before >= pulseRate/2 && time.Since(p.LastArrival()) < 50*time.Millisecond
		if resumed && (rig.backlog == 0 || sent-received <= rig.backlog) {
			return false, nil
		}
	}
	return true, nil
}

func peersTable(r *Result, ways []roamWay, cells map[string]*roamCell, runs int) {
	table := Table{
		Title:   fmt.Sprintf("Longest silence at the device in ms, %d runs each", runs),
		Columns: []string{"way", "dies silently: median", "worst", meanColumn, "announced: median", "worst", meanColumn, "before it: median", "lost", "doubled", "dead", "preliminary study"},
	}
	for _, way := range ways {
		silent, told := cells[cellName(way.name, false)], cells[cellName(way.name, true)]
		table.Add(way.name, ms1(median(silent.gaps)), ms1(quantile(silent.gaps, 1)), meanText(silent.gaps, 1, 1), ms1(median(told.gaps)), ms1(quantile(told.gaps, 1)), meanText(told.gaps, 1, 1), ms1(median(told.still)),
			silent.lost+told.lost, silent.doubled+told.doubled, silent.dead+told.dead, way.before)
	}
	r.Tables = append(r.Tables, table)
	peersClaims(r, cells)
	r.Note("The device's daemon has its default settings: nothing is said about probes or choices.")
	r.Note("A silence is the time between two arrivals beyond the server's own spacing of 1 ms. Announced: the device is told %v before the link dies.", notice)
	r.Note("The silence before an announced move, watched for half a second, is this machine's own.")
	r.Note("MPTCP is the kernel's and detects by itself; applications on QUIC and TCP take a silence of %v for the link's death. TCP's application says which message it expects when it connects anew, so it loses nothing; without that it would lose what was on the way.", watchLimit)
}

// peersClaims compares handover with the best of the other ways. With notice all of them are as
// good as the machine permits: differences are noise.
func peersClaims(r *Result, cells map[string]*roamCell) {
	best, name := 0.0, ""
	for _, way := range peerWays() {
		if g := cells[cellName(way.name, true)].own(); name == "" || g < best {
			best, name = g, way.name
		}
	}
	for _, way := range []string{seamlessTCP, seamlessUDP} {
		peersClaim(r, way, cells[cellName(way, true)], name, best)
	}
}

// own returns the median gap at the failure less the median gap before it, which the machine itself
// causes.
func (c *roamCell) own() float64 { return median(c.gaps) - median(c.still) }

func peersClaim(r *Result, way string, ours *roamCell, name string, best float64) {
	r.Claim(ours.lost == 0 && ours.dead == 0, way+", announced: everything arrives over the one socket", "%d lost, %d of %d runs dead", ours.lost, ours.dead, len(ours.gaps))
	r.Claim(ours.own() <= best+inMS(modelBound), way+fmt.Sprintf(", announced: median silence, less that of before, at most %v above the best of the others", modelBound), "%.1f ms, %s %.1f ms", ours.own(), name, best)
}

func ms1(v float64) string { return fmt.Sprintf("%.1f", v) }
