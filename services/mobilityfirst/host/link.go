package host

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
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
	// sending is held by who takes frames from the lists below and sends them.
	sending sync.Mutex
	// changed says that some interface has, so that it may be there now, or be another.
	changed chan struct{}

	// What follows is guarded by host.mu.
	up bool
	*Interface
	carrier uint32      // how often it has come and gone; zero if that was not told
	greeter *time.Timer // says hello again
	greeted time.Time   // when hello was said last because the link is there
	moved   bool        // the carrier has been away since
	control [][]byte    // frames to be sent as they are
	acks    []*incoming // streams that have something to acknowledge
	active  []*path     // by which streams may have something to send
	// answering is that who has received something sends next: nobody else needs to be woken for acknowledgements.
	answering bool
}

func newLink(h *Host, name string) *link {
	return &link{host: h, name: name, wake: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
}

// run has the interface open until ctx ends.
func (l *link) run(ctx context.Context) {
	pause, said := reopenAfter, ""
	for ctx.Err() == nil {
		began := time.Now()
		i, err := l.open()
		if err == nil {
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
		changed := l.await(ctx, pause)
		if pause = min(2*pause, longestReopen); changed { // it may be there again, or another has changed
			_ = tasks.Sleep(ctx, reopenAfter-time.Since(began))
		}
	}
}

// used is what was said of an interface that is.
const used = "used"

// open opens the interface, or the loopback, which has no name.
func (l *link) open() (*Interface, error) {
	switch {
	case l.name == "":
		return newLoopback(), nil
	case l.isFar():
		return l.host.far.open()
	}
	return l.host.Open(l.name)
}

// use sends and receives until the interface fails or ctx ends.
func (l *link) use(ctx context.Context, i *Interface) error {
	l.begin(i)
	sending := tasks.New()
	failed := make(chan error, 1)
	sending.Start(func(ctx context.Context) { failed <- l.send(ctx, i) })
	if l.isFar() {
		sending.Start(func(ctx context.Context) { l.host.far.watch(ctx, i) })
	}
	err := l.receive(ctx, i)
	l.finish()
	_ = i.Close()
	sending.Stop()
	if other := <-failed; other != nil {
		err = other // and the reason for what the receiver says
	}
	return err
}

// begin has the link used.
func (l *link) begin(i *Interface) {
	h := l.host
	h.mu.Lock()
	defer h.mu.Unlock()
	l.Interface, l.up, l.carrier = i, true, 0
	l.plugged()
}

// greetAgain is how long after a link is there hello is said again, each after the one before: a switch may look first
// what is behind a port (Sluice's core for a second), and forget what comes meanwhile. The first is how far two hellos
// are apart at least, however often the carrier comes and goes.
var greetAgain = []time.Duration{300 * time.Millisecond, 900 * time.Millisecond, 2 * time.Second}

// plugged says hello for all names, newer than any before, and asks for ways that there were none to, or that may lead
// elsewhere now. The same is said again a few times. The host is locked.
func (l *link) plugged() {
	now := time.Now()
	if !l.isFar() && now.Sub(l.greeted) < greetAgain[0] {
		if l.moved = true; l.greeter == nil {
			l.greetLater(greetAgain)
		}
		return
	}
	l.renew(now)
	l.greet()
	if !l.isFar() {
		l.unplugged()
		l.greetLater(greetAgain)
	}
}

// renew has the next hellos be newer, and ways asked for. The host is locked.
func (l *link) renew(now time.Time) {
	h := l.host
	l.moved = false
	for _, e := range h.names {
		e.renew(now)
	}
	for _, o := range h.out {
		if o.wanted() && (o.path == nil || (o.path.link == l || o.multihomed) && o.request == 0) {
			o.asks = 0
			o.ask(now)
		}
	}
	for _, m := range h.multicasts {
		if m.wanted() {
			m.search(now)
		}
	}
}

// greet says hello for all names. The host is locked.
func (l *link) greet() {
	h := l.host
	l.greeted = time.Now()
	if l.isFar() {
		h.far.toPublish()
		return
	}
	for _, e := range h.names {
		hello := e.hello(l)
		l.tell(broadcast, 0, &hello)
	}
}

// greetLater says hello again, newer if the carrier has been away. The host is locked.
func (l *link) greetLater(after []time.Duration) {
	var timer *time.Timer
	timer = time.AfterFunc(after[0], func() {
		l.host.mu.Lock()
		defer l.host.mu.Unlock()
		if l.greeter != timer {
			return // the link is not there any more, or hello has been said anew
		}
		l.greeter = nil
		if l.moved {
			l.renew(time.Now())
		}
		if l.greet(); len(after) > 1 {
			l.greetLater(after[1:])
		}
	})
	l.greeter = timer
}

// unplugged has hello not said again. The host is locked.
func (l *link) unplugged() {
	if l.greeter != nil {
		l.greeter.Stop()
		l.greeter = nil
	}
}

// finish gives up what was to be sent, and the ways over the link.
func (l *link) finish() {
	h := l.host
	h.mu.Lock()
	defer h.mu.Unlock()
	l.up, l.control = false, nil
	l.unplugged()
	for _, in := range l.acks {
		if in.ackOn == l {
			in.ackOn = nil
		}
	}
	for _, p := range l.active {
		p.active = false
	}
	l.acks, l.active = nil, nil
	h.neighbours.leave(l)
	now := time.Now()
	for _, o := range h.out {
		o.lose(l, now)
	}
}

// kick has the link send what there is. The host is locked.
func (l *link) kick() {
	if !l.answering {
		l.rouse()
	}
}

// rouse wakes who sends.
func (l *link) rouse() {
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

// activate has a stream send what it may by a path. The host is locked.
func (l *link) activate(p *path) {
	if l.up && !p.active {
		p.active = true
		l.active = append(l.active, p)
		l.kick()
	}
}

// send sends what there is until ctx ends.
func (l *link) send(ctx context.Context, i *Interface) error {
	var buffers [batch][]byte
	for {
		l.sending.Lock()
		more, err := l.sendSome(i, &buffers, true)
		l.sending.Unlock()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			_ = i.Close() // who receives finds out, too
			return err
		case more:
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
		}
	}
}

// answer sends acknowledgements and answers, and leaves chunks to send: they may take longer than others can wait to be
// received.
func (l *link) answer(i *Interface, buffers *[batch][]byte) error {
	more := true
	var err error
	if l.sending.TryLock() {
		more, err = l.sendSome(i, buffers, false)
		l.sending.Unlock()
	}
	if more {
		l.rouse()
	}
	return err
}

// sendSome sends frames that may go now, with those of chunks or without, and says whether there may be more.
func (l *link) sendSome(i *Interface, buffers *[batch][]byte, chunks bool) (more bool, err error) {
	frames, more := l.collect(buffers, chunks)
	if len(frames) > 0 {
		err = i.Send(frames)
	}
	if errors.Is(err, unix.ENOBUFS) {
		err = nil // they are lost, as on the link itself: a cable is unplugged, or full
	}
	return more, err
}

// collect gives the frames that may go now, some of them in buffers, with those of chunks or without, and says whether there
// are more.
func (l *link) collect(buffers *[batch][]byte, chunks bool) (frames [][]byte, more bool) {
	h := l.host
	h.mu.Lock()
	defer h.mu.Unlock()
	l.answering = false
	if !l.up {
		return nil, false
	}
	n := min(len(l.control), batch)
	frames = append(make([][]byte, 0, batch), l.control[:n]...)
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
	for chunks && len(frames) < batch && len(l.active) > 0 {
		p := l.active[0]
		l.active[0] = nil
		l.active = l.active[1:]
		p.active = false
		o := p.stream
		if !o.goesBy(p) {
			continue // any more
		}
		if q, ask := o.sender.Query(p.carries); ask {
			add(p.mac, p.tag, &q)
		}
		may := min(batch-len(frames), turn)
		sent, again := o.sender.Sent, o.sender.Retransmitted
		parts := o.sender.Send(p.carries, now, may)
		h.counters.Frames += o.sender.Sent - sent
		h.counters.Again += o.sender.Retransmitted - again
		for i := range parts {
			add(p.mac, p.tag, &parts[i])
		}
		if len(parts) == may {
			p.active = true
			l.active = append(l.active, p)
		}
		if len(parts) > 0 && len(o.further) > 0 {
			o.activate() // where this one is full others may have what is next
		}
		o.schedule(now)
	}
	return frames, len(l.control)+len(l.acks)+len(l.active) > 0
}
