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
	// batch is the maximum number of frames that are sent with one call.
	batch = 64
	// maxTurn is the maximum number of these frames that one stream sends before the next stream
	// has its turn.
	maxTurn = 16
	// maxControl limits the waiting frames that carry no chunks; further ones are dropped.
	maxControl = 1024
	// initialReopen is the time before a failed interface is opened again. It is doubled each time
	// up to maxReopen, unless the interface worked for longer than steady. When the kernel reports a
	// change, the interface is opened at once, but at intervals of at least minReopen.
	initialReopen, maxReopen, steady = 250 * time.Millisecond, 2 * time.Second, 10 * time.Second
	minReopen                        = 20 * time.Millisecond
)

var broadcast = openflow.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// link is one of the interfaces that the host is configured with. It also exists while the
// interface itself does not.
type link struct {
	host *Host
	name string
	wake chan struct{} // signals that there is something to send
	// sendMu is held while frames are taken from the lists below and sent.
	sendMu sync.Mutex
	// changed signals that some interface has changed, so that this one may exist now, or differ.
	changed chan struct{}

	// host.mu guards the following fields.
	up bool
	*Interface
	carrier     uint32      // the kernel's count of carrier changes; zero if it is not known
	helloTimer  *time.Timer // repeats the hello
	lastHello   time.Time   // when a hello was last sent because the link is up
	carrierLost bool        // the carrier was lost after lastHello
	control     [][]byte    // encoded frames that carry no chunks
	acks        []*incoming // streams that have something to acknowledge
	active      []*path     // paths by which streams may have something to send
	// answering is set while the receiving goroutine is going to send as well, so that the sending
	// goroutine need not be woken for acknowledgements.
	answering bool
}

func newLink(h *Host, name string) *link {
	return &link{host: h, name: name, wake: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
}

// run opens the interface and uses it until ctx ends. It opens it again when it fails.
func (l *link) run(ctx context.Context) {
	pause, logged := initialReopen, ""
	for ctx.Err() == nil {
		began := time.Now()
		i, err := l.open()
		if err == nil {
			if logged != logUsed {
				logged = logUsed
				l.host.Log.Info("using interface", "interface", l.name, "mac", i.MAC, "mtu", i.MTU)
			}
			err = l.serve(ctx, i)
			if time.Since(began) > steady {
				pause = initialReopen
			}
		}
		if ctx.Err() != nil {
			return
		}
		if err.Error() != logged {
			logged = err.Error()
			l.host.Log.Warn("interface cannot be used", "interface", l.name, "error", err)
		}
		changed := l.awaitChange(ctx, pause)
		if pause = min(2*pause, maxReopen); changed { // the interface may exist again, or another one has changed
			_ = tasks.Sleep(ctx, minReopen-time.Since(began))
		}
	}
}

// logUsed stands for the message that the interface is in use. run remembers it, or an error's
// text, as the last message that it logged.
const logUsed = "used"

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

// serve sends and receives frames until the interface fails or ctx ends.
func (l *link) serve(ctx context.Context, i *Interface) error {
	l.start(i)
	sending := tasks.New()
	failed := make(chan error, 1)
	sending.Start(func(ctx context.Context) { failed <- l.send(ctx, i) })
	if l.isFar() {
		sending.Start(func(ctx context.Context) { l.host.far.watch(ctx, i) })
	}
	err := l.receive(ctx, i)
	l.close()
	_ = i.Close()
	sending.Stop()
	if other := <-failed; other != nil {
		err = other // the cause of the receiver's error
	}
	return err
}

// start marks the link as up.
func (l *link) start(i *Interface) {
	h := l.host
	h.mu.Lock()
	defer h.mu.Unlock()
	l.Interface, l.up, l.carrier = i, true, 0
	l.connected()
}

// helloRepeats lists the delays after which a hello is repeated when a link has come up, each
// counted from the one before. A switch may drop the first frames: its end of the link comes up a
// little later, or it first examines the link behind a port (Sluice's controller does so for a
// second).
var helloRepeats = []time.Duration{20 * time.Millisecond, 30 * time.Millisecond, 250 * time.Millisecond, 900 * time.Millisecond, 2 * time.Second}

// minHelloInterval is the minimum time between a hello and one with another number, however often
// the carrier is lost and found.
const minHelloInterval = 50 * time.Millisecond

// connected says hello for all names, with new numbers, and requests paths that could not be found
// before, or that may now be different. It repeats the hellos a few times. The host is locked.
func (l *link) connected() {
	now := time.Now()
	if wait := minHelloInterval - now.Sub(l.lastHello); !l.isFar() && wait > 0 {
		l.carrierLost = true
		l.stopHellos()
		l.scheduleHello(append([]time.Duration{wait}, helloRepeats...))
		return
	}
	l.renew(now)
	l.sayHello()
	if !l.isFar() {
		l.stopHellos()
		l.scheduleHello(helloRepeats)
	}
}

// renew gives the next hellos new numbers, and requests paths. The host is locked.
func (l *link) renew(now time.Time) {
	h := l.host
	l.carrierLost = false
	for _, e := range h.names {
		e.renew(now)
	}
	for _, o := range h.outgoing {
		if o.hasWork() && (o.path == nil || o.path.link == l || o.multihomed) {
			o.attempts = 0
			o.requestPath(now)
		}
	}
	for _, m := range h.multicasts {
		if m.hasWork() {
			m.search(now)
		}
	}
}

// sayHello says hello for all names. The host is locked.
func (l *link) sayHello() {
	h := l.host
	l.lastHello = time.Now()
	if l.isFar() {
		h.far.triggerPublish()
		return
	}
	for _, e := range h.names {
		hello := e.hello(l)
		l.sendControl(broadcast, 0, &hello)
	}
}

// repeatRequests sends the pending requests for paths once more on a link that has come up: like
// hellos, the first ones may have been dropped. The host is locked.
func (l *link) repeatRequests(now time.Time) {
	for _, o := range l.host.outgoing {
		if o.request != 0 && o.hasWork() && o.multicast == nil && o.attempts <= len(helloRepeats) && l.host.limits.requests.AllowN(now, 1) {
			l.sendControl(broadcast, 0, o.pathRequest(l))
		}
	}
}

// scheduleHello repeats the hello and pending requests after each of the delays, with a new number
// if the carrier was lost. The host is locked.
func (l *link) scheduleHello(delays []time.Duration) {
	var timer *time.Timer
	timer = time.AfterFunc(delays[0], func() {
		l.host.mu.Lock()
		defer l.host.mu.Unlock()
		if l.helloTimer != timer {
			return // the link is down, or a new hello has been sent
		}
		l.helloTimer = nil
		if l.carrierLost {
			l.renew(time.Now())
		} else {
			l.repeatRequests(time.Now())
		}
		if l.sayHello(); len(delays) > 1 {
			l.scheduleHello(delays[1:])
		}
	})
	l.helloTimer = timer
}

// stopHellos stops repeating the hello. The host is locked.
func (l *link) stopHellos() {
	if l.helloTimer != nil {
		l.helloTimer.Stop()
		l.helloTimer = nil
	}
}

// close marks the link as down, and drops its waiting frames and the paths over it.
func (l *link) close() {
	h := l.host
	h.mu.Lock()
	defer h.mu.Unlock()
	l.up, l.control = false, nil
	l.stopHellos()
	for _, in := range l.acks {
		if in.ackLink == l {
			in.ackLink = nil
		}
	}
	for _, p := range l.active {
		p.listed = false
	}
	l.acks, l.active = nil, nil
	h.neighbours.removeLink(l)
	now := time.Now()
	for _, o := range h.outgoing {
		o.dropLink(l, now)
	}
}

// wakeUnlessAnswering wakes the sending goroutine, unless the receiving goroutine is about to send.
// The host is locked.
func (l *link) wakeUnlessAnswering() {
	if !l.answering {
		l.wakeSender()
	}
}

// wakeSender wakes the sending goroutine.
func (l *link) wakeSender() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// sendControl queues a frame that carries no chunk. The host is locked.
func (l *link) sendControl(to openflow.MAC, tag uint16, f frame.Frame) {
	if l.up && len(l.control) < maxControl {
		l.control = append(l.control, f.AppendTo(l.AppendHeader(nil, to, tag)))
		l.wakeUnlessAnswering()
	}
}

// acknowledge queues an acknowledgement of a stream. The frame is made when it is sent, so that it
// describes the state at that time. The host is locked.
func (l *link) acknowledge(in *incoming) {
	if l.up && in.ackLink != l {
		in.ackLink = l
		l.acks = append(l.acks, in)
		l.wakeUnlessAnswering()
	}
}

// activate queues a path in its link's list, so that the path's stream sends the frames that it may
// send. The host is locked.
func (l *link) activate(p *path) {
	if l.up && !p.listed {
		p.listed = true
		l.active = append(l.active, p)
		l.wakeUnlessAnswering()
	}
}

// send sends waiting frames until ctx ends.
func (l *link) send(ctx context.Context, i *Interface) error {
	var buffers [batch][]byte
	for {
		l.sendMu.Lock()
		more, err := l.sendSome(i, &buffers, true)
		l.sendMu.Unlock()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			_ = i.Close() // so that the receiving goroutine ends as well
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

// answer sends acknowledgements and other frames that carry no chunks. It sends no chunks, because
// that could take longer than frames of other hosts can wait to be received.
func (l *link) answer(i *Interface, buffers *[batch][]byte) error {
	more := true
	var err error
	if l.sendMu.TryLock() {
		more, err = l.sendSome(i, buffers, false)
		l.sendMu.Unlock()
	}
	if more {
		l.wakeSender()
	}
	return err
}

// sendSome sends the frames that may be sent now, with or without chunks, and reports whether there
// may be more.
func (l *link) sendSome(i *Interface, buffers *[batch][]byte, chunks bool) (more bool, err error) {
	frames, more := l.collect(buffers, chunks)
	if len(frames) > 0 {
		err = i.Send(frames)
	}
	if errors.Is(err, unix.ENOBUFS) {
		err = nil // the frames are lost as on the link itself: a cable is unplugged, or a queue is full
	}
	return more, err
}

// collect returns the frames that may be sent now, with or without chunks, and reports whether
// there are more. Some of the frames are in buffers.
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
		if in.ackLink != l || in.closed {
			continue // the stream is in another link's list now, or has ended
		}
		in.ackLink = nil
		if in.link != l {
			in.link.acknowledge(in)
			continue
		}
		ack := in.receiver.Ack()
		add(in.mac, in.peer.tag(in.place), &ack)
	}
	for chunks && len(frames) < batch && len(l.active) > 0 {
		p := l.active[0]
		l.active[0] = nil
		l.active = l.active[1:]
		p.listed = false
		o := p.stream
		if !o.uses(p) {
			continue // the stream no longer uses the path
		}
		if q, ask := o.sender.Query(p.streamPath); ask {
			add(p.mac, p.tag, &q)
		}
		may := min(batch-len(frames), maxTurn)
		sent, again := o.sender.Sent, o.sender.Retransmitted
		parts := o.sender.Send(p.streamPath, now, may)
		h.counters.Frames += o.sender.Sent - sent
		h.counters.Again += o.sender.Retransmitted - again
		for i := range parts {
			add(p.mac, p.tag, &parts[i])
		}
		if len(parts) == may {
			p.listed = true
			l.active = append(l.active, p)
		}
		if len(parts) > 0 && len(o.morePaths) > 0 {
			o.activate() // another path may have room for the next frames
		}
		o.schedule(now)
	}
	return frames, len(l.control)+len(l.acks)+len(l.active) > 0
}
