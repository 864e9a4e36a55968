package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/handover"
)

// HandoverOptions holds the options of the demo of handover.
type HandoverOptions struct {
	Out    io.Writer
	TTY    bool   // reports whether Out is a terminal, on which lines can move
	Binary string // path of sluice
	Lab    string // path of sluice-lab
	Rate   float64
	Delay  time.Duration // of each radio, in each direction
	// Keep leaves the lab up after the moves, until the context ends.
	Keep bool
}

// These are the defaults of the radios.
const (
	DefaultRadioRate  = 50e6
	DefaultRadioDelay = 5 * time.Millisecond
)

const (
	handoverLab = "demo-roam" // differs from the name in the tutorial
	deviceName  = "dev1"
	streamPort  = 6000
	pullPort    = 8000
	streamRate  = 1000
	// radioQueue is the length of a radio's queue in time. A busy machine passes on in one burst
	// what a radio would have received evenly.
	radioQueue = 250 * time.Millisecond
	// downloadShare is the part of a radio's rate that the download uses. If it used all of it, the
	// radio's queue would drop packets whether the device moves or not.
	downloadShare = 0.6
	// watchBefore and watchAfter are how long each move is watched.
	watchBefore = time.Second
	watchAfter  = 2 * time.Second
	// lastLines is the number of lines of each log that are printed if the demo fails.
	lastLines = 12
)

// handoverDemo is one run of the demo.
type handoverDemo struct {
	HandoverOptions
	dir    string
	lab    *lab.Lab
	a, b   lab.MobilityDomain
	parts  *testbed.HandoverDeployment
	mobile *testbed.Mobile
	stream *testbed.Stream
	pull   *testbed.Pull
	away   time.Duration // how long the radio of the last move had no link
}

// RunHandover runs the demo of handover. It removes everything it has built, also after an error or
// when ctx ends.
func RunHandover(ctx context.Context, o HandoverOptions) error {
	d := &handoverDemo{HandoverOptions: o}
	return perform(ctx, &d.dir, func(ctx context.Context) error {
		err := d.show(ctx)
		if err != nil && ctx.Err() == nil {
			d.lastWords()
		}
		return err
	}, d.down)
}

func (d *handoverDemo) say(format string, args ...any) { fmt.Fprintf(d.Out, format+"\n", args...) }

// lastWords prints the end of each program's log.
func (d *handoverDemo) lastWords() {
	logs, err := filepath.Glob(filepath.Join(d.dir, "*.log"))
	if err != nil {
		return
	}
	for _, file := range logs {
		d.say("\n%s ends with:\n%s", filepath.Base(file), testbed.Tail(file, lastLines))
	}
}

func (d *handoverDemo) show(ctx context.Context) error {
	if err := d.up(ctx); err != nil {
		return err
	}
	results, err := d.roam(ctx)
	if err != nil {
		return err
	}
	if err := d.report(results); err != nil {
		return err
	}
	if d.Keep {
		d.invite(ctx)
	}
	return nil
}

// up builds both operators' networks and starts everything in them.
func (d *handoverDemo) up(ctx context.Context) (err error) {
	if err := lab.Sweep(ctx, lab.Options{}); err != nil {
		d.say("Left over from an earlier run: %v", err)
	}
	d.say("Building two operators' networks, A and B: each a root switch with two access points,")
	d.say("and a device with radios at A's first (eth0) and second (eth2) and at B's first (eth1).")
	radio := delayline.Params{Rate: d.Rate, Delay: d.Delay, Queue: int64(d.Rate / 8 * radioQueue.Seconds())}
	o := lab.MobilityOptions{Levels: 2, Interfaces: 3, Radio: radio, Link: delayline.Params{Delay: time.Millisecond}}
	d.a, d.b = o.Domains()
	if d.lab, err = lab.Up(ctx, lab.MobilityDomains(handoverLab, o), lab.Options{Ephemeral: true}); err != nil {
		return fmt.Errorf("build the network: %w", err)
	}
	d.say("Starting a controller for each operator, and the device's daemon.")
	d.parts, err = testbed.DeployHandover(ctx, testbed.HandoverOptions{
		Lab: d.lab, Binary: d.Binary, LogDir: d.dir,
		Domains: []testbed.HandoverNetwork{{Name: "a", Network: d.a}, {Name: "b", Network: d.b}},
	})
	if err != nil {
		return err
	}
	home := d.parts.Domains[0]
	for _, policy := range []string{"seamless", "saving"} {
		if err := home.PutClass(ctx, policy, handover.ClassSpec{Policy: policy}); err != nil {
			return err
		}
	}
	d.mobile, err = testbed.StartMobile(ctx, testbed.MobileOptions{
		Host: d.lab.Host(deviceName), Binary: d.Binary, LogDir: d.dir, Home: home, Class: "seamless",
		Device: deviceName, Interfaces: []string{"eth0", "eth2", "eth1"},
	})
	return err
}

// down removes everything that up has made, even if up did not finish.
func (d *handoverDemo) down(ctx context.Context) error {
	var errs []error
	if d.pull != nil {
		d.pull.Stop()
	}
	if d.stream != nil {
		d.stream.Stop()
	}
	if d.mobile != nil {
		d.mobile.Close()
	}
	if d.parts != nil {
		errs = append(errs, d.parts.Close())
	}
	return errors.Join(append(errs, takeDown(ctx, d.lab))...)
}

// roamAct is one move of the device.
type roamAct struct {
	name   string
	policy string
	text   string // description of the move for people
	// lossless means that the move must not lose a packet.
	lossless bool
	do       func(context.Context) error
}

func (d *handoverDemo) acts() []roamAct {
	use := func(name string) func(context.Context) error {
		return func(ctx context.Context) error { _, err := d.mobile.Move(ctx, name); return err }
	}
	return []roamAct{
		{"vertical", "seamless", "to the other radio, at A's second access point", true, use("eth2")},
		{"vertical", "saving", "back, without anything sent twice", false, use("eth0")},
		{"horizontal", "saving", "one radio leaves A's first access point and joins the second", false, d.reattach},
		{"between operators", "seamless", "to the radio at B's access point", true, use("eth1")},
		{"between operators", "saving", "back to A", false, use("eth0")},
	}
}

// link returns the name of the link at an interface of the device.
func link(name string) string { return deviceName + "-" + name }

// reattach moves the device's first radio to another access point. It takes the other radios down
// meanwhile, so that the device has only one.
func (d *handoverDemo) reattach(ctx context.Context) error {
	others := []string{"eth1", "eth2"}
	for _, name := range others {
		if err := d.lab.SetLink(ctx, link(name), false); err != nil {
			return err
		}
	}
	left := time.Now()
	if err := d.lab.SetLink(ctx, link("eth0"), false); err != nil {
		return err
	}
	if err := d.lab.MoveLink(ctx, link("eth0"), d.a.Edges[1]); err != nil {
		return err
	}
	if err := d.lab.SetLink(ctx, link("eth0"), true); err != nil {
		return err
	}
	d.away = time.Since(left)
	err := testbed.Poll(ctx, "the device's return", func() error {
		s, err := d.mobile.Status(ctx)
		if err == nil && s.Active != "eth0" {
			err = fmt.Errorf("it uses %q", s.Active)
		}
		return err
	})
	for _, name := range others {
		err = errors.Join(err, d.lab.SetLink(ctx, link(name), true))
	}
	return err
}

// roam starts the download and the stream, and makes the moves.
func (d *handoverDemo) roam(ctx context.Context) (results []roamResult, err error) {
	server, device := d.lab.Host(d.a.Server), d.lab.Host(deviceName)
	addr := d.mobile.Addr()
	d.say("\nThe device has %v and keeps it. A download and %d UDP packets a second run to it, over", addr, streamRate)
	d.say("one TCP connection and one socket from the first move to the last:")
	d.pull, err = testbed.StartPull(ctx, testbed.PullOptions{
		Client: device, Server: server, Listen: netip.AddrPortFrom(d.a.ServerAddr, pullPort), Rate: downloadShare * d.Rate,
	})
	if err != nil {
		return nil, err
	}
	d.stream, err = testbed.StartStream(ctx, testbed.StreamOptions{
		Sender: server, Receiver: device, To: netip.AddrPortFrom(addr, streamPort), Rate: streamRate,
	})
	if err != nil {
		return nil, err
	}
	if err := d.watch(ctx, "before the first move", 2*time.Second); err != nil {
		return nil, err
	}
	for _, act := range d.acts() {
		r, err := d.act(ctx, act)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", act.name, act.policy, err)
		}
		results = append(results, r)
		d.say("%s", r.line())
	}
	log := d.stream.Stop() // Only a stopped stream knows of every packet whether it has arrived.
	d.stream = nil
	for i := range results {
		results[i].udp = log.Between(results[i].began, results[i].ended)
	}
	return results, nil
}

// act makes one move and measures its effects.
func (d *handoverDemo) act(ctx context.Context, act roamAct) (r roamResult, err error) {
	if err := d.mobile.SetClass(ctx, act.policy); err != nil {
		return r, err
	}
	from := time.Now()
	label := act.name + ", " + act.policy
	if err := d.watch(ctx, label, watchBefore); err != nil {
		return r, err
	}
	before, err := d.dropped(ctx)
	if err != nil {
		return r, err
	}
	r.began = time.Now()
	d.away = 0
	if err := act.do(ctx); err != nil {
		return r, err
	}
	r.away = d.away
	if err := d.watch(ctx, label, watchAfter); err != nil {
		return r, err
	}
	r.ended = time.Now()
	download := d.pull.Snapshot()
	r.roamAct = act
	r.tcp, r.goodput = download.Between(r.began, r.ended), download.SeriesBetween(from, r.ended)
	r.resets, r.wrong = download.Resets, download.Wrong
	after, err := d.dropped(ctx)
	r.dropped = after - before
	return r, errors.Join(download.Err, err)
}

// dropped returns the number of packets that the queues of links have dropped so far.
func (d *handoverDemo) dropped(ctx context.Context) (n uint64, err error) {
	for _, k := range d.lab.Status(ctx).Links {
		if k.State != nil {
			n += k.State.AtoB.Stats.Dropped + k.State.BtoA.Stats.Dropped
		}
	}
	return n, ctx.Err()
}

// watch prints the progress of the download and the stream for the given time.
func (d *handoverDemo) watch(ctx context.Context, label string, lasts time.Duration) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	end := time.Now().Add(lasts)
	bytes, at := d.pull.Bytes(), time.Now()
	for time.Now().Before(end) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		sent, received := d.stream.Count()
		if d.TTY {
			rate := float64(d.pull.Bytes()-bytes) * 8 / time.Since(at).Seconds() / 1e6
			fmt.Fprintf(d.Out, "\r\x1b[K  %-30s download %5.1f Mbit/s, UDP: %d sent, %d arrived", label, rate, sent, received)
		}
		bytes, at = d.pull.Bytes(), time.Now()
	}
	if d.TTY {
		fmt.Fprint(d.Out, "\r\x1b[K")
	}
	return nil
}

// report prints the table. It returns an error if it is not what the demo promises.
func (d *handoverDemo) report(results []roamResult) error {
	d.say("")
	if err := printRoam(d.Out, results); err != nil {
		return err
	}
	if bad := roamFaults(results); len(bad) > 0 {
		return fmt.Errorf("%w: %s", ErrFailed, strings.Join(bad, "; "))
	}
	d.say(`
The application never reconnected: one socket, one address, five moves between three access
points of two operators. Seamless sends every packet to both places while the device moves;
saving sends nothing twice and is silent for as long as the switches are away from the
controller. A single radio is away from its old access point before it is at the new one.

What to try next:
  sudo bin/sluice-lab demo handover --keep                    keep the networks up and roam yourself
  sudo bin/sluice-lab demo handover --delay 20ms              radios that are farther away
  sudo bin/sluice-lab experiment run handover-peers --quick   beside MPTCP, QUIC and TCP, with a report
  docs/tutorial.md                                            step by step`)
	return nil
}

// invite prints how to use the network, and waits until ctx ends.
func (d *handoverDemo) invite(ctx context.Context) {
	home := d.parts.Domains[0]
	d.say(`
The networks stay up until you press Ctrl-C. In another terminal, as root:
  ip netns exec %[1]s ping %[2]v
  ip netns exec %[1]s %[3]s mobile status --socket %[4]s
  ip netns exec %[1]s %[3]s mobile move eth2 --socket %[4]s
  ip netns exec %[5]s env SLUICE_SERVER=%[6]s SLUICE_CA=%[10]s SLUICE_TOKEN_FILE=%[7]s %[3]s handover list
  %[11]s link down %[8]s -l %[9]s`,
		d.lab.Host(deviceName).Namespace(), d.a.ServerAddr, d.Binary, d.mobile.Socket(), d.lab.Control().Namespace(),
		home.URL(), home.TokenFile(), link("eth0"), handoverLab, home.CAFile(), d.Lab)
	<-ctx.Done()
	d.say("\nTaking the networks down.")
}
