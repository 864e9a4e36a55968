package access

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/host"
	"github.com/sluice-net/sluice/services/mobilityfirst/rawlink"
)

const (
	// reopenDelay is the time after which a failed interface is opened again.
	reopenDelay = 500 * time.Millisecond
	// minMTU is the minimum MTU of an interface: a frame with the headers of a chunk and a part of
	// it.
	minMTU = 256
	// dataOverhead is the size of a DATA frame without its part of the chunk.
	dataOverhead = 16
	// cackOverhead is the size of a CACK without the bitmap, plus the additional byte of the
	// bitmap.
	cackOverhead = 13
)

// errDown means that the interface is not open.
var errDown = errors.New("the interface does not exist or is down")

// link is one of the interfaces that the router is configured with. It also exists while the
// interface itself does not.
type link struct {
	router *Router
	name   string

	mu      sync.Mutex // held while frames are sent, which only one goroutine may do at a time
	current *host.Interface
	id      uint32

	// failure is the error that was logged last, and empty when the interface has worked since.
	// Only run and the functions that it calls use it.
	failure string
}

// run opens the interface and uses it until ctx ends. It opens it again when it fails, and logs an
// error that repeats itself once.
func (l *link) run(ctx context.Context) {
	for ctx.Err() == nil {
		i, err := l.router.Open(l.name)
		if err == nil {
			err = l.serve(ctx, i)
		}
		if ctx.Err() != nil {
			return
		}
		if err.Error() != l.failure {
			l.failure = err.Error()
			l.router.Log.Warn("interface can't be used", "interface", l.name, "error", err)
		}
		_ = tasks.Sleep(ctx, reopenDelay)
	}
}

// serve handles frames until the interface fails or ctx ends, and closes the interface.
func (l *link) serve(ctx context.Context, i *host.Interface) error {
	defer func() { _ = i.Close() }()
	if i.MTU < minMTU {
		return fmt.Errorf("interface %s has an MTU of %d bytes, want at least %d", l.name, i.MTU, minMTU)
	}
	l.setInterface(i)
	defer l.setInterface(nil)
	if l.failure == "" {
		l.logUse(i)
	}
	for {
		frames, err := i.Receive(ctx)
		if err != nil {
			return err
		}
		if l.failure != "" { // an interface that opens may still not work
			l.failure = ""
			l.logUse(i)
		}
		if answers := l.router.receive(l, i, frames, time.Now()); len(answers) > 0 {
			_ = l.send(answers) // hosts repeat their requests if an answer is lost
		}
	}
}

func (l *link) logUse(i *host.Interface) {
	l.router.Log.Info("interface is used", "interface", l.name, "mac", i.MAC, "mtu", i.MTU, "id", fmt.Sprintf("%08x", l.id))
}

// setInterface sets the open interface, or nil.
func (l *link) setInterface(i *host.Interface) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current = i; i != nil {
		l.id = l.router.idFor(i.MAC)
	}
}

// idFor returns the number by which the router identifies itself on an interface, in place of the
// low 32 bits of a GUID: the last four bytes of its Ethernet address, or a following number that no
// host has.
func (r *Router) idFor(mac openflow.MAC) uint32 {
	id := binary.BigEndian.Uint32(mac[2:])
	for r.guests[id] != nil || id == anybody || id == nobody {
		id++
	}
	return id
}

// iface returns the interface, or nil if it is not open.
func (l *link) iface() *host.Interface {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// send sends frames with their Ethernet headers. Frames for which the interface has no room are
// lost, as on the link itself.
func (l *link) send(frames [][]byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil {
		return fmt.Errorf("%s: %w", l.name, errDown)
	}
	if err := l.current.Send(frames); err != nil && !errors.Is(err, unix.ENOBUFS) {
		return fmt.Errorf("%s: %w", l.name, err)
	}
	return nil
}

// sendFrame sends a frame to a host.
func (l *link) sendFrame(to openflow.MAC, f frame.Frame) error {
	i := l.iface()
	if i == nil {
		return fmt.Errorf("%s: %w", l.name, errDown)
	}
	return l.send([][]byte{f.AppendTo(i.AppendHeader(nil, to, 0))})
}

// receive handles frames received on an interface, and returns the frames that answer them.
func (r *Router) receive(l *link, i *host.Interface, frames []rawlink.Frame, now time.Time) (answers [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range frames {
		if f.Label != 0 || f.From == i.MAC || f.From.IsMulticast() {
			continue // not from a host of the original release
		}
		if a := r.handle(place{l, f.From}, i.MTU, f.Payload, now); a != nil {
			answers = append(answers, a.AppendTo(i.AppendHeader(nil, f.From, 0)))
		}
	}
	return answers
}

// handle handles a frame and returns its answer, or nil. r.mu is held.
func (r *Router) handle(at place, mtu int, payload []byte, now time.Time) frame.Frame {
	if len(payload) < 4 || binary.BigEndian.Uint32(payload) > uint32(frame.TypeDeassociate) {
		return nil // from a host of Sluice
	}
	g := r.at[at]
	switch t := frame.Type(binary.BigEndian.Uint32(payload)); {
	case t == frame.TypeProbe, t == frame.TypeAssociate:
	case g == nil:
		r.counters.Strangers++
		return nil
	}
	f, err := frame.Parse(payload)
	if err != nil {
		r.counters.Malformed++
		return nil
	}
	switch f := f.(type) {
	case *frame.Probe:
		if f.Ack {
			g.lastHeard = now
			return nil
		}
		return r.handleProbe(at, f, now)
	case *frame.Associate:
		r.handleAssociate(at, f, now)
		return nil
	}
	g.lastHeard = now
	switch f := f.(type) {
	case *frame.Deassociate:
		if f.Entity == g.GUID.Short() {
			g.depart("it has de-associated")
		}
	case *frame.CSYN:
		return g.handleCSYN(f, mtu, now)
	case *frame.Data:
		return g.handleData(f, now)
	case *frame.CACK:
		g.handleCACK(f, now)
	}
	return nil
}
