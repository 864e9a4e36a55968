package loadgen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// Run connects the switches, introduces their hosts, and generates load for the given time.
func Run(ctx context.Context, o Options) (Result, error) {
	o = o.withDefaults()
	if o.Ports < 2 || o.Hosts < o.Ports || o.Hosts%o.Ports != 0 {
		return Result{}, fmt.Errorf("load with %d hosts on %d ports: want at least two ports, and as many hosts on each", o.Hosts, o.Ports)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	loaders := make([]*loader, o.Switches)
	for i := range loaders {
		var d net.Dialer
		conn, err := d.DialContext(ctx, o.Network, o.Address)
		if err != nil {
			return Result{}, err
		}
		defer func() { _ = conn.Close() }()
		context.AfterFunc(ctx, func() { _ = conn.Close() })
		loaders[i] = newLoader(&o, i, conn)
	}
	if err := each(loaders, func(l *loader) error { return l.handshake(ctx) }); err != nil {
		return Result{}, err
	}
	if err := each(loaders, func(l *loader) error { return l.learnHosts(ctx) }); err != nil {
		return Result{}, err
	}
	begin := time.Now().Add(o.Warmup)
	end := begin.Add(o.Duration)
	atBegin, atEnd := notify(begin, o.OnBegin), notify(end, o.OnEnd)
	err := each(loaders, func(l *loader) error {
		err := l.run(ctx, begin, end)
		if err != nil {
			cancel(err)
		}
		return err
	})
	atBegin()
	atEnd()
	if err != nil {
		return Result{}, err
	}
	return collect(loaders, begin, end), nil
}

func each(loaders []*loader, f func(*loader) error) error {
	errs := make([]error, len(loaders))
	var wg sync.WaitGroup
	for i, l := range loaders {
		wg.Go(func() { errs[i] = f(l) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// learnHosts sends a packet from every host and waits for a moment, so that the controller learns the
// hosts.
func (l *loader) learnHosts(ctx context.Context) error {
	l.introduce()
	if err := l.flush(); err != nil {
		return err
	}
	return l.handleUntil(ctx, time.Now().Add(learnTime), func() bool { return true })
}

const learnTime = 300 * time.Millisecond

// run keeps the window full: it sends as many packets as answers have arrived. It does not count
// anything before begin.
func (l *loader) run(ctx context.Context, begin, end time.Time) error {
	now := time.Now()
	for range l.opts.Window {
		l.load(now)
	}
	measuring := false
	for {
		if err := l.flush(); err != nil {
			return err
		}
		_ = l.conn.SetReadDeadline(now.Add(answerTimeout))
		answers, err := l.batch()
		if err != nil {
			if isTimeout(err) {
				return fmt.Errorf("switch %v: no answer for %v, %d packets are under way", l.dpid, answerTimeout, l.next-l.answered)
			}
			return errors.Join(err, context.Cause(ctx))
		}
		now = time.Now()
		if !measuring && now.After(begin) {
			measuring = true
			l.count.sent, l.count.answered, l.count.flowMods, l.rtts = 0, 0, 0, l.rtts[:0]
		}
		if now.After(end) {
			return nil
		}
		for range answers {
			l.load(now)
		}
	}
}

// answerTimeout is how long a controller may be silent before it counts as failed.
const answerTimeout = 5 * time.Second

func collect(loaders []*loader, begin, end time.Time) Result {
	r := Result{Begin: begin, End: end, Elapsed: end.Sub(begin)}
	for _, l := range loaders {
		r.Sent += l.count.sent
		r.Answered += l.count.answered
		r.FlowMods += l.count.flowMods
		r.Reordered += l.count.reordered
		r.PerSwitch = append(r.PerSwitch, l.count.answered)
		r.Latencies = append(r.Latencies, l.rtts...)
	}
	slices.Sort(r.Latencies)
	return r
}

// notify calls f at the given time in a goroutine. The returned function waits until f has been
// called.
func notify(at time.Time, f func()) (wait func()) {
	if f == nil {
		return func() {}
	}
	var wg sync.WaitGroup
	wg.Add(1)
	timer := time.AfterFunc(time.Until(at), func() {
		defer wg.Done()
		f()
	})
	return func() {
		if timer.Stop() { // The load has ended by an error, or a moment early.
			wg.Done()
			f()
		}
		wg.Wait()
	}
}
