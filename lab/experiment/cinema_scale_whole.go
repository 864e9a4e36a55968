package experiment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
)

// These are the sizes of the dissertation's prototype.
const (
	wholeProducers, wholeViewers = 200, 700
	wholeIngress, wholeEgress    = 2, 7
)

// wholeRig is a network like the dissertation's prototype: ingress gateways, a core, and before
// each egress gateway a sort switch, which copies channels to the gateway's viewers.
type wholeRig struct {
	*testbed.Deployment
	lab      *lab.Lab
	feeds    []*testbed.Feed
	gateways []*testbed.RawGateway
	viewers  []*testbed.RawViewer
}

func wholeNetwork() (lab.Topology, map[string]testbed.CinemaRole) {
	t := lab.Topology{Name: "whole", Switches: []lab.Switch{{Name: "core"}}}
	roles := map[string]testbed.CinemaRole{}
	add := func(host string, role testbed.CinemaRole) {
		at := "s-" + host
		roles[host] = role
		t.Switches = append(t.Switches, lab.Switch{Name: at})
		t.Hosts = append(t.Hosts, lab.Host{Name: host, Agent: true})
		t.Links = append(t.Links, lab.Both(host, at, delayline.Params{}), lab.Both(at, "core", delayline.Params{}))
	}
	for i := range wholeIngress {
		add(fmt.Sprintf("in%d", i+1), testbed.CinemaIngress)
	}
	for i := range wholeEgress {
		add(fmt.Sprintf("out%d", i+1), testbed.CinemaOwn)
	}
	return t, roles
}

func (e *Env) withWhole(ctx context.Context, f func(context.Context, *wholeRig) error) error {
	top, roles := wholeNetwork()
	return e.withLab(ctx, top, func(ctx context.Context, l *lab.Lab) (err error) {
		rig := &wholeRig{lab: l}
		rig.Deployment, err = testbed.Deploy(ctx, testbed.Options{
			Lab: l, Binary: e.Binary, LogDir: e.Dir, Gateways: roles, IngressConfig: fmt.Sprintf("max_channels: %d\n", wholeProducers),
		})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rig.Deployment.Close()) }()
		defer rig.close()
		if err := rig.open(ctx); err != nil {
			return err
		}
		return f(ctx, rig)
	})
}

func (rig *wholeRig) close() {
	for _, g := range rig.gateways {
		g.Close()
	}
	for _, f := range rig.feeds {
		f.Close()
	}
}

// open starts all producers, gateways and viewers.
func (rig *wholeRig) open(ctx context.Context) error {
	for i := range wholeEgress {
		g, err := testbed.StartRawGateway(ctx, rig.Deployment, fmt.Sprintf("out%d", i+1))
		if err != nil {
			return err
		}
		rig.gateways = append(rig.gateways, g)
	}
	for i := range wholeIngress {
		f, err := testbed.OpenFeed(rig.lab.Host(fmt.Sprintf("in%d", i+1)))
		if err != nil {
			return err
		}
		rig.feeds = append(rig.feeds, f)
	}
	err := addSilent(ctx, rig.Deployment, wholeProducers, func(number int) string { return fmt.Sprintf("in%d", number%wholeIngress+1) })
	if err != nil {
		return err
	}
	for i := range wholeViewers {
		v := rig.gateways[i%wholeEgress].NewViewer()
		v.Tell(treeChannel(wholeChannel(i)))
		rig.viewers = append(rig.viewers, v)
	}
	return awaitCopies(ctx, rig.Deployment, wholeViewers)
}

// wholeChannel returns the number of the channel that the i-th viewer watches. Every channel has
// three or four viewers, at different gateways.
func wholeChannel(i int) int { return i%wholeProducers + 1 }

// scaleDissertation lets all producers send as much as the machine can carry.
func scaleDissertation(ctx context.Context, env *Env, r *Result) error {
	raw, err := env.CSV("whole", "share_of_bit_rate", "datagrams", "lost", "doubled", "seconds")
	if err != nil {
		return err
	}
	defer raw.Close()
	env.Step("%d producers, %d viewers", wholeProducers, wholeViewers)
	best := 0.0
	table := Table{
		Title:   fmt.Sprintf("%d producers at %d ingress gateways, %d viewers at %d egress gateways, ten switches: datagrams of 1 Mbit/s, so many of them", wholeProducers, wholeIngress, wholeViewers, wholeEgress),
		Columns: []string{"share of 1 Mbit/s", "Mbit/s to viewers", "datagrams for viewers", "lost", "doubled"},
	}
	err = env.withWhole(ctx, func(ctx context.Context, rig *wholeRig) error {
		for _, share := range []float64{1. / 32, 1. / 16, 1. / 8, 1. / 4, 1. / 2, 1} {
			clean := false
			for range tries {
				c, err := rig.send(ctx, share, pick(env.Scale, 3*time.Second, 6*time.Second, 15*time.Second))
				if err != nil {
					return err
				}
				if err := raw.Row(share, c.copies, c.lost, c.doubled, c.took); err != nil {
					return err
				}
				got := float64(c.copies) * scaleFrameBits / c.took.Seconds() / 1e6
				table.Add(fmt.Sprintf("%.3g", share), fmt.Sprintf("%.0f", got), c.copies+c.lost, c.lost, c.doubled)
				env.Logf("%.3g of 1 Mbit/s each: %d of %d lost", share, c.lost, c.copies+c.lost)
				if clean = c.clean() && got > 0.8*share*wholeViewers*viewerBitRate/1e6; clean {
					break
				}
			}
			if !clean {
				return nil
			}
			best = share
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.Tables = append(r.Tables, table)
	r.Claim(best > 0, fmt.Sprintf("%d viewers of %d channels: each gets each datagram once, at the rate that this machine carries", wholeViewers, wholeProducers), "%.3g of 1 Mbit/s each", best)
	r.Note("The whole network is scaled by the time between datagrams alone: number of producers, viewers, gateways, rules and buckets are those of the dissertation, whose gateways and switches had machines of their own.")
	return nil
}

// send makes each producer send a share of its bit rate for a time.
func (rig *wholeRig) send(ctx context.Context, share float64, lasts time.Duration) (c copyRun, err error) {
	for i, v := range rig.viewers {
		if err := v.Expect(uint16(wholeChannel(i))); err != nil {
			return c, err
		}
	}
	interval := time.Duration(scaleFrameBits / (share * viewerBitRate) * float64(time.Second))
	sending, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	began := time.Now()
	rounds := make([]uint64, wholeIngress)
	var group errgroup.Group
	for i, f := range rig.feeds {
		var all []testbed.Datagram
		for number := 1; number <= wholeProducers; number++ {
			if number%wholeIngress == i {
				all = append(all, testbed.ChannelDatagram(uint16(number), scalePayload))
			}
		}
		group.Go(func() (err error) {
			rounds[i], err = f.Send(sending, interval, all...)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return c, err
	}
	c.took = time.Since(began)
	if err := tasks.Sleep(ctx, time.Second); err != nil { // until the datagrams in flight have arrived
		return c, err
	}
	for i, v := range rig.viewers {
		got, err := v.Got(uint16(wholeChannel(i)))
		if err != nil {
			return c, err
		}
		once := got.Packets - got.Doubled
		c.copies += once
		c.doubled += got.Doubled
		if sent := rounds[wholeChannel(i)%wholeIngress]; once <= sent {
			c.lost += sent - once
		} else {
			c.doubled += once - sent
		}
	}
	return c, nil
}
