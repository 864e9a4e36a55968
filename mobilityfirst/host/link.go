package host

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/mobilityfirst/frame"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// batch is how many frames are sent with one call.
	batch = 64
	// turn is how many of them one stream sends before it is the next one's turn.
	turn = 16
	// maxControl is how many frames that carry no chunks wait to be sent; more are left out.
	maxControl = 1024
	// reopenAfter is how long an interface that fails is left alone, doubled each time up to
	// longestReopen unless it was steady.
	reopenAfter, longestReopen, steady = 250 * time.Millisecond, 2 * time.Second, 10 * time.Second
)

var broadcast = openflow.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// link is one of the host's interfaces, while that is there and while it is not.
type link struct {
	host *Host
	name string
	wake chan struct{} // that there is something to send

	// What follows is guarded by host.mu.
	up bool
	*Interface
	control [][]byte    // frames to be sent as they are
	acks    []*incoming // streams that have something to acknowledge
	active  []*outgoing // streams that may have something to send
}

// run has the interface open until ctx ends.
func (l *link) run(ctx context.Context) {
	pause, said := reopenAfter, ""
	for ctx.Err() == nil {
		i, err := l.open()
		if err == nil {
			began := time.Now()
			if said != used {
				said = used
				l.host.Log.Info("interface is used", "interface", l.name, "mac", i.MAC, "mtu", i.MTU)
			}
			err = l.use(ctx, i)
			if time.Since(began) > steady {
				pause = reopenAfter
			}
		}
		if ctx.Err() != nil {
			return
		}
		if err.Error() != said {
			said = err.Error()
			l.host.Log.Warn("interface can't be used", "interface", l.name, "error", err)
		}
		_ = tasks.Sleep(ctx, pause)
		pause = min(2*pause, longestReopen)
	}
}

// used is what was said of an interface that is.
const used = "used"

// open opens the interface, or the loopback, which has no name.
func (l *link) open() (*Interface, error) {
	if l.name == "" {
		return newLoopback(), nil
	}
	return l.host.Open(l.name)
}

// use sends and receives until the interface fails or ctx ends.
func (l *link) use(ctx context.Context, i *Interface) error {
	l.begin(i)
	sending := tasks.New()
	failed := make(chan error, 1)
	sending.Start(func(ctx context.Context) { failed <- l.send(ctx, i) })
	err := l.receive(ctx, i)
	l.finish()
	_ = i.Close()
	sending.Stop()
	if other := <-failed; other != nil {
		err = other // and the reason for what the receiver says
	}
	return err
}

// begin says hello for all names, and asks for ways that there were none to.
func (l *link) begin(i *Interface) {
	h := l.host
	h.mu.Lock()
	defer h.mu.Unlock()
	l.Interface, l.up = i, true
	now := time.Now()
	for _, e := range h.names {
		e.renew(now) // it may be plugged in elsewhere than before
		hello := e.hello(l)
		l.tell(broadcast, 0, &hello)
	}
	for _, o := range h.out {
		if o.path == nil && o.wanted() {
			o.ask(now)
		}
	}
}

// finish gives up what was to be sent, and the ways over the link.
func (l *link) finish() {
	h := l.host
	h.mu.Lock()
	defer h.mu.Unlock()
	l.up, l.control = false, nil
	for _, in := range l.acks {
		if in.ackOn == l {
			in.ackOn = nil
		}
	}
	for _, o := range l.active {
		if o.activeOn == l {
			o.activeOn = nil
		}
	}
	l.acks, l.active = nil, nil
	h.neighbours.leave(l)
	now := time.Now()
	for _, o := range h.out {
		if o.path != nil && o.path.link == l {
			o.lose(now)
		}
	}
}

// kick has the link send what there is.
func (l *link) kick() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// tell sends a frame that carries no chunk. The host is locked.
func (l *link) tell(to openflow.MAC, tag uint16, f frame.Frame) {
	if l.up && len(l.control) < maxControl {
		l.control = append(l.control, f.AppendTo(l.AppendHeader(nil, to, tag)))
		l.kick()
	}
}

// acknowledge has a stream's state told, once, as it is when the frame is made. The host is locked.
func (l *link) acknowledge(in *incoming) {
	if l.up && in.ackOn != l {
		in.ackOn = l
		l.acks = append(l.acks, in)
		l.kick()
	}
}

// activate has a stream send what it may. The host is locked.
func (l *link) activate(o *outgoing) {
	if l.up && o.activeOn != l {
		o.activeOn = l
		l.active = append(l.active, o)
		l.kick()
	}
}

// send sends what there is until ctx ends.
func (l *link) send(ctx context.Context, i *Interface) error {
	var buffers [batch][]byte
	for {
		frames := l.collect(&buffers)
		if len(frames) > 0 {
			switch err := i.Send(frames); {
			case ctx.Err() != nil:
				return nil
			case errors.Is(err, unix.ENOBUFS):
				// They are lost, as on the link itself: a cable is unplugged, or full.
			case err != nil:
				_ = i.Close() // who receives finds out, too
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
		}
	}
}

// collect gives the frames that may go now, some of them in buffers.
func (l *link) collect(buffers *[batch][]byte) [][]byte {
	h := l.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if !l.up {
		return nil
	}
	n := min(len(l.control), batch)
	frames := append(make([][]byte, 0, batch), l.control[:n]...)
	if l.control = l.control[n:]; len(l.control) == 0 {
		l.control = nil
	}
	add := func(to openflow.MAC, tag uint16, f frame.Frame) {
		b := &buffers[len(frames)]
		*b = f.AppendTo(l.AppendHeader((*b)[:0], to, tag))
		frames = append(frames, *b)
	}
	now := time.Now()
	for len(frames) < batch && len(l.acks) > 0 {
		in := l.acks[0]
		l.acks[0] = nil
		l.acks = l.acks[1:]
		if in.ackOn != l || in.left {
			continue // it stands in another's list now, or is over
		}
		in.ackOn = nil
		if in.link != l {
			in.link.acknowledge(in)
			continue
		}
		ack := in.receiver.Ack()
		add(in.mac, in.peer.tag(in.place, now), &ack)
	}
	for len(frames) < batch && len(l.active) > 0 {
		o := l.active[0]
		l.active[0] = nil
		l.active = l.active[1:]
		if o.activeOn != l {
			continue // it stands in another's list now
		}
		o.activeOn = nil
		if o.path == nil {
			continue
		}
		if o.path.link != l {
			o.path.link.activate(o)
			continue
		}
		if q, ask := o.sender.Query(); ask {
			add(o.path.mac, o.path.tag, &q)
		}
		may := min(batch-len(frames), turn)
		sent, again := o.sender.Sent, o.sender.Again
		parts := o.sender.Send(now, may)
		h.counters.Frames += o.sender.Sent - sent
		h.counters.Again += o.sender.Again - again
		for i := range parts {
			add(o.path.mac, o.path.tag, &parts[i])
		}
		if len(parts) == may {
			o.activeOn = l
			l.active = append(l.active, o)
		}
		o.schedule(now)
	}
	return frames
}
