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

// What a viewer does whose time is measured.
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
	// timedEvery is the time between two datagrams of a channel, and so how exact times are.
	timedEvery = time.Millisecond
	timedSize  = 64
	// quiet is for how long nothing has to come for what came before to be the last.
	quiet = 150 * time.Millisecond
	// timedHere is the gateway whose viewer is timed, timedThere that at which others watch.
	timedHere, timedThere = 1, 0
)

// treeTimes are, by what was done, the times in ms until the first datagram of what is wanted, or
// the last one of what is not.
type treeTimes struct {
	took map[string][]float64
	hops map[string]int // links that the channel had to be led over
	raw  *CSV
	rig  *treeRig
}

// treeTimes has a viewer join, change and leave while channels 1 and 2 come.
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

// round does everything once; at its end nobody watches.
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

// join has a viewer watch a channel, beside others that it has.
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

// first waits for the first datagram, and says when it came.
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

// leave has a viewer leave.
func (t *treeTimes) leave(ctx context.Context, act string, v *testbed.RawViewer, number uint16) error {
	began := testbed.Uptime()
	if err := v.Watch(ctx); err != nil {
		return err
	}
	if err := tasks.Sleep(ctx, quiet); err != nil {
		return err
	}
	got, err := v.Got(number)
	if err != nil {
		return err
	}
	return t.note(act, max(got.Last-began, 0))
}

// change has a viewer change its channel as egress gateways do it: the new one beside the old
// one, then without.
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

// links is how many links the tree of a channel has.
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
