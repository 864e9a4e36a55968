package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/cinema"
)

const (
	// scalePayload is the payload of a video packet, and scaleFrameBits the size of its frame for a
	// stream of 1 Mbit/s.
	scalePayload   = 1200
	scaleFrameBits = (scalePayload + 42) * 8
	// drainLooks bounds how often drain checks whether packets still arrive.
	drainLooks = 150
	// viewerBitRate is the bit rate of a viewer in the dissertation, in bit/s.
	viewerBitRate = 1e6
)

func cinemaScale() Experiment {
	return Experiment{
		Name:     "cinema-scale",
		Title:    "How many copies switches and egress gateways make",
		Question: "How many viewers can one sort switch, one egress gateway, and this machine's whole network serve?",
		Source:   "dissertation 2017, section 6.3.2: 200 producers and 700 consumers at 1 Mbit/s, 100 of them at each gateway",
		Varies:   []string{"part", "buckets"},
		Run:      runCinemaScale,
	}
}

// scalePart is one of the experiment's measurements.
type scalePart struct {
	name string
	run  func(context.Context, *Env, *Result) error
}

func runCinemaScale(ctx context.Context, env *Env) (*Result, error) {
	all := []scalePart{{"copies", scaleCopies}, {"moves", scaleMoves}, {"dissertation", scaleDissertation}, {"gateway", scaleGateway}}
	parts, err := chosen(env.Only, "part", all, func(p scalePart) string { return p.name })
	if err != nil {
		return nil, err
	}
	r := &Result{Network: "one sort switch between an ingress and an egress gateway; for the whole network ten switches; virtual cables without limits; Open vSwitch that forwards in user space, on this machine's cores together with sender and receivers"}
	for _, p := range parts {
		if err := p.run(ctx, env, r); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return r, nil
}

// copyRig is one switch between a sender and a gateway that counts what its viewers receive.
type copyRig struct {
	*testbed.Deployment
	lab     *lab.Lab
	feed    *testbed.Feed
	gateway *testbed.RawGateway
	all     []*testbed.RawViewer
	channel []uint16 // channel of each viewer
	daemon  int      // process ID of the switch's daemon
}

func (e *Env) withCopies(ctx context.Context, name string, channels int, f func(context.Context, *copyRig) error) error {
	top := lab.Topology{
		Name: name, Switches: []lab.Switch{{Name: "s1"}}, Hosts: []lab.Host{{Name: "in1", Agent: true}, {Name: "out1", Agent: true}},
		Links: []lab.Link{lab.Both("in1", "s1", delayline.Params{}), lab.Both("out1", "s1", delayline.Params{})},
	}
	roles := map[string]testbed.CinemaRole{"in1": testbed.CinemaIngress, "out1": testbed.CinemaOwn}
	return e.withLab(ctx, top, func(ctx context.Context, l *lab.Lab) (err error) {
		rig := &copyRig{lab: l}
		if rig.daemon, err = l.Switch("s1").PID(); err != nil {
			return err
		}
		if rig.Deployment, err = testbed.Deploy(ctx, testbed.Options{Lab: l, Binary: e.Binary, LogDir: e.Dir, Gateways: roles, Services: "cinema: {link_share: 0.9}\n"}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rig.Deployment.Close()) }()
		if rig.gateway, err = testbed.StartRawGateway(ctx, rig.Deployment, "out1"); err != nil {
			return err
		}
		defer rig.gateway.Close()
		if rig.feed, err = testbed.OpenFeed(l.Host("in1")); err != nil {
			return err
		}
		defer rig.feed.Close()
		if err := addSilent(ctx, rig.Deployment, channels, func(int) string { return "in1" }); err != nil {
			return err
		}
		return f(ctx, rig)
	})
}

// declare declares channels 1 to n with the bit rate of perSecond datagrams a second. Meters limit
// the channels to that rate.
func (rig *copyRig) declare(ctx context.Context, n int, perSecond float64) error {
	for number := 1; number <= n; number++ {
		c := cinema.ChannelSpec{Name: treeChannel(number), Number: number, BitRate: units.Rate(perSecond * scaleFrameBits), Ingress: "in1"}
		if err := rig.Do(ctx, http.MethodPut, "/api/v1/cinema/channels/"+c.Name, c, nil); err != nil {
			return fmt.Errorf("declare channel %s: %w", c.Name, err)
		}
	}
	return nil
}

// viewers makes n viewers watch; successive viewers watch successive channels.
func (rig *copyRig) viewers(ctx context.Context, n, channels int) error {
	for i := len(rig.all); i < n; i++ {
		v, number := rig.gateway.NewViewer(), i%channels+1
		v.Tell(treeChannel(number))
		rig.all, rig.channel = append(rig.all, v), append(rig.channel, uint16(number))
	}
	return awaitCopies(ctx, rig.Deployment, n)
}

// awaitCopies waits until the network copies channels to n viewers.
func awaitCopies(ctx context.Context, d *testbed.Deployment, n int) error {
	err := testbed.Poll(ctx, fmt.Sprintf("the copies for %d viewers", n), func() error {
		var trees []cinema.TreeInfo
		if err := d.Get(ctx, "/api/v1/cinema/trees", &trees); err != nil {
			return err
		}
		sum := 0
		for _, t := range trees {
			sum += t.Viewers
		}
		if sum != n {
			return fmt.Errorf("there are %d", sum)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return tasks.Sleep(ctx, 2*time.Second) // until the switches have applied all rules, and their caches have no old groups
}

// copyRun holds the results of one period of sending.
type copyRun struct {
	wanted        float64 // intended copies a second
	sent          uint64  // datagrams of each channel
	copies        uint64
	lost, doubled uint64
	without       int    // viewers who have received nothing
	late          uint64 // copies that arrived long after the sender had ended
	took          time.Duration
	cpu           time.Duration // CPU time of the switch
	drops         testbed.Drops // packets that this machine has dropped, as far as it counts them
}

// rate returns the rate of copies that arrived while datagrams were sent.
func (c copyRun) rate() float64 {
	return float64(c.copies-c.late) / max(c.took, time.Nanosecond).Seconds()
}

// perCopy returns the switch's CPU time for one copy, in µs.
func (c copyRun) perCopy() float64 { return c.cpu.Seconds() * 1e6 / float64(max(c.copies, 1)) }

// clean reports whether the switch was fast enough and each viewer has received everything once.
func (c copyRun) clean() bool { return c.lost+c.doubled+c.late == 0 && c.copies > 0 }

// send sends perSecond datagrams a second of each channel, and counts what the viewers receive. It
// sends for the time lasts or, if meanwhile is set, until that function returns.
func (rig *copyRig) send(ctx context.Context, perSecond float64, lasts time.Duration, meanwhile func(context.Context) error) (c copyRun, err error) {
	channels := map[uint16]bool{}
	var datagrams []testbed.Datagram
	for i, v := range rig.all {
		if err := v.Expect(rig.channel[i]); err != nil {
			return c, err
		}
		if n := rig.channel[i]; !channels[n] {
			channels[n] = true
			datagrams = append(datagrams, testbed.ChannelDatagram(n, scalePayload))
		}
	}
	drops, err := testbed.CountDrops(ctx, rig.lab)
	if err != nil {
		return c, err
	}
	before, err := testbed.CPUTime(rig.daemon)
	if err != nil {
		return c, err
	}
	began := time.Now()
	if c.sent, err = sendBeside(ctx, rig.feed, time.Duration(float64(time.Second)/perSecond), lasts, meanwhile, datagrams...); err != nil {
		return c, err
	}
	c.took = time.Since(began)
	if err := rig.drain(ctx, &c); err != nil {
		return c, err
	}
	after, err := testbed.CPUTime(rig.daemon)
	if err != nil {
		return c, err
	}
	c.cpu = after - before
	now, err := testbed.CountDrops(ctx, rig.lab)
	if err != nil {
		return c, err
	}
	c.drops = now.Since(drops)
	return c, nil
}

// drain waits until no datagram is in flight any more, and adds up what the viewers have received.
func (rig *copyRig) drain(ctx context.Context, c *copyRun) error {
	var first uint64
	for look := 0; look < drainLooks; look++ {
		if err := tasks.Sleep(ctx, maxInFlight); err != nil {
			return err
		}
		had := c.copies + c.doubled
		if err := rig.count(c); err != nil {
			return err
		}
		switch {
		case look == 0:
			first = c.copies
		case c.copies+c.doubled == had:
			c.late = c.copies - first
			return nil
		}
	}
	return fmt.Errorf("packets still come %v after the last one was sent", drainLooks*maxInFlight)
}

// sendBeside sends for the time lasts or, if meanwhile is set, until that function returns.
func sendBeside(ctx context.Context, feed *testbed.Feed, interval, lasts time.Duration, meanwhile func(context.Context) error, all ...testbed.Datagram) (sent uint64, err error) {
	if meanwhile == nil {
		sending, cancel := context.WithTimeout(ctx, lasts)
		defer cancel()
		return feed.Send(sending, interval, all...)
	}
	sending, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		defer cancel()
		done <- meanwhile(ctx)
	}()
	sent, err = feed.Send(sending, interval, all...)
	cancel()
	return sent, errors.Join(err, <-done)
}

// count adds up what the viewers have received.
func (rig *copyRig) count(c *copyRun) error {
	c.copies, c.lost, c.doubled, c.without = 0, 0, 0, 0
	for i, v := range rig.all {
		got, err := v.Got(rig.channel[i])
		if err != nil {
			return err
		}
		once := got.Packets - got.Doubled
		if once == 0 {
			c.without++
		}
		c.copies += once
		c.doubled += got.Doubled
		if once <= c.sent {
			c.lost += c.sent - once
		} else {
			c.doubled += once - c.sent
		}
	}
	return nil
}
