package experiment

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/cinema"
)

// These are the actions of a viewer whose time is measured.
const (
	joinInitial = "join: nobody watches the channel"
	joinRemote  = "join: another gateway has the channel"
	joinLocal   = "join: the gateway has the channel"
	leaveLast   = "leave: the last one of the gateway"
	leaveOther  = "leave: others watch there"
	zapRemote   = "change: nobody watches the new channel"
	zapLocal    = "change: the gateway has the new channel"
)

var treeActs = []string{joinInitial, joinRemote, joinLocal, zapRemote, zapLocal, leaveOther, leaveLast}

const (
	// timedEvery is the time between two datagrams of a channel, and so the resolution of times.
	timedEvery = time.Millisecond
	timedSize  = 64
	// quietTime is the time without datagrams after which the latest datagram is taken to be the
	// last.
	quietTime = 150 * time.Millisecond
	// timedHere is the gateway whose viewer is timed, and timedThere the one at which others watch.
	timedHere, timedThere = 1, 0
)

// treeTimes holds, for each action, the times in ms until the first datagram of a wanted channel,
// or the last one of an unwanted channel.
type treeTimes struct {
	took map[string][]float64
	hops map[string]int // number of links that were added to the channel's tree
	raw  *CSV
	rig  *treeRig
}

// treeTimes measures a viewer that joins, changes and leaves while channels 1 and 2 are sent.
func (e *Env) treeTimes(ctx context.Context, rig *treeRig) (*treeTimes, error) {
	raw, err := e.CSV("times", "what", "seconds")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	t := &treeTimes{took: map[string][]float64{}, hops: map[string]int{}, raw: raw, rig: rig}
	sending, cancel := context.WithCancel(ctx)
	group, sending := errgroup.WithContext(sending)
	group.Go(func() error {
		_, err := rig.feed.Send(sending, timedEvery, testbed.ChannelDatagram(1, timedSize), testbed.ChannelDatagram(2, timedSize))
		return err
	})
	for range pick(e.Scale, 5, 30, 100) {
		if err = t.round(ctx); err != nil {
			break
		}
	}
	cancel()
	if failed := group.Wait(); err == nil {
		err = failed
	}
	return t, err
}

// round performs each action once. At its end nobody watches.
func (t *treeTimes) round(ctx context.Context) error {
	here, there, late := t.rig.gateways[timedHere].NewViewer(), t.rig.gateways[timedThere].NewViewer(), t.rig.gateways[timedHere].NewViewer()
	steps := []func() error{
		func() error { return t.join(ctx, joinInitial, here, 1) },
		func() error { return t.join(ctx, joinLocal, late, 1) },
		func() error { return t.leave(ctx, leaveOther, late, 1) },
		func() error { return t.leave(ctx, leaveLast, here, 1) },
		func() error { return t.join(ctx, "", there, 1) },
		func() error { return t.join(ctx, joinRemote, here, 1) },
		func() error { return t.change(ctx, zapRemote, here, 1, 2) },
		func() error { return t.join(ctx, "", late, 1) },
		func() error { return t.change(ctx, zapLocal, here, 2, 1) },
		func() error { return here.Watch(ctx) },
		func() error { return late.Watch(ctx) },
		func() error { return there.Watch(ctx) },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return nil
}

// join makes a viewer watch a channel in addition to those it has.
func (t *treeTimes) join(ctx context.Context, act string, v *testbed.RawViewer, number uint16, had ...string) error {
	before, err := t.links(ctx, number)
	if err != nil {
		return err
	}
	if err := v.Expect(number); err != nil {
		return err
	}
	began := testbed.Uptime()
	if err := v.Watch(ctx, append([]string{treeChannel(int(number))}, had...)...); err != nil {
		return err
	}
	first, err := t.first(ctx, v, number)
	if err != nil {
		return err
	}
	after, err := t.links(ctx, number)
	if err != nil || act == "" {
		return err
	}
	t.hops[act] = after - before
	return t.note(act, first-began)
}

// first waits for the first datagram, and returns its time of arrival.
func (t *treeTimes) first(ctx context.Context, v *testbed.RawViewer, number uint16) (at time.Duration, err error) {
	err = testbed.Poll(ctx, "the first packet", func() error {
		got, err := v.Got(number)
		if err == nil && got.Packets == 0 {
			err = fmt.Errorf("none has come to port %d", v.Port)
		}
		at = got.First
		return err
	})
	return at, err
}

// leave makes a viewer leave.
func (t *treeTimes) leave(ctx context.Context, act string, v *testbed.RawViewer, number uint16) error {
	began := testbed.Uptime()
	if err := v.Watch(ctx); err != nil {
		return err
	}
	if err := tasks.Sleep(ctx, quietTime); err != nil {
		return err
	}
	got, err := v.Got(number)
	if err != nil {
		return err
	}
	return t.note(act, max(got.Last-began, 0))
}

// change changes a viewer's channel as egress gateways do: first both channels, then the new one
// alone.
func (t *treeTimes) change(ctx context.Context, act string, v *testbed.RawViewer, from, to uint16) error {
	if err := t.join(ctx, act, v, to, treeChannel(int(from))); err != nil {
		return err
	}
	return v.Watch(ctx, treeChannel(int(to)))
}

func (t *treeTimes) note(act string, took time.Duration) error {
	t.took[act] = append(t.took[act], inMS(took))
	return t.raw.Row(act, took)
}

// links returns the number of links that a channel's tree has now.
func (t *treeTimes) links(ctx context.Context, number uint16) (int, error) {
	var all []cinema.TreeInfo
	if err := t.rig.Get(ctx, "/api/v1/cinema/trees", &all); err != nil {
		return 0, err
	}
	for _, x := range all {
		if x.Channel == treeChannel(int(number)) {
			return len(x.Links), nil
		}
	}
	return 0, nil
}
