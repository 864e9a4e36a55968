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
	// reopenAfter is how long an interface that fails is left alone.
	reopenAfter = 500 * time.Millisecond
	// leastMTU is what an interface has to carry: a frame with the headers of a chunk and something of it.
	leastMTU = 256
	// dataOverhead is what stands in a DATA frame before the part of the chunk.
	dataOverhead = 16
	// cackOverhead is what stands in a CACK before the bitmap, with the byte more that this has.
	cackOverhead = 13
)

// errDown is for a link whose interface is not open.
var errDown = errors.New("the interface is not there")

// link is one of the router's interfaces, while that is there and while it is not.
type link struct {
	router *Router
	name   string

	mu   sync.Mutex // held while frames are sent: one goroutine may at a time
	used *host.Interface
	id   uint32
}

// run has the interface open until ctx ends.
func (l *link) run(ctx context.Context) {
	said := ""
	for ctx.Err() == nil {
		i, err := l.router.Open(l.name)
		if err == nil {
			err = l.use(ctx, i)
			said = ""
		}
		if ctx.Err() != nil {
			return
		}
		if err.Error() != said {
			said = err.Error()
			l.router.Log.Warn("interface can't be used", "interface", l.name, "error", err)
		}
		_ = tasks.Sleep(ctx, reopenAfter)
	}
}

// use takes frames until the interface fails or ctx ends, and closes it.
func (l *link) use(ctx context.Context, i *host.Interface) error {
	defer func() { _ = i.Close() }()
	if i.MTU < leastMTU {
		return fmt.Errorf("interface %s has an MTU of %d bytes, want at least %d", l.name, i.MTU, leastMTU)
	}
	l.begin(i)
	defer l.begin(nil)
	l.router.Log.Info("interface is used", "interface", l.name, "mac", i.MAC, "mtu", i.MTU, "id", fmt.Sprintf("%08x", l.id))
	for {
		frames, err := i.Receive(ctx)
		if err != nil {
			return err
		}
		if answers := l.router.receive(l, i, frames, time.Now()); len(answers) > 0 {
			_ = l.send(answers) // what is lost is asked for again
		}
	}
}

// begin has an interface used, or none.
func (l *link) begin(i *host.Interface) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used = i; i != nil {
		l.id = l.router.idFor(i.MAC)
	}
}

// idFor is what the router calls itself on an interface, in place of the low 32 bits of a GUID: the last four bytes of its
// Ethernet address, or a number behind it that is no host's.
func (r *Router) idFor(mac openflow.MAC) uint32 {
	id := binary.BigEndian.Uint32(mac[2:])
	for r.guests[id] != nil || id == anybody || id == nobody {
		id++
	}
	return id
}

// interfaceNow is the interface while it is open; nil else.
func (l *link) interfaceNow() *host.Interface {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used
}

// send sends frames, with their Ethernet headers. One that the interface takes no more of is lost, as on the link itself.
func (l *link) send(frames [][]byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used == nil {
		return fmt.Errorf("%s: %w", l.name, errDown)
	}
	if err := l.used.Send(frames); err != nil && !errors.Is(err, unix.ENOBUFS) {
		return fmt.Errorf("%s: %w", l.name, err)
	}
	return nil
}

// tell sends a frame to a host.
func (l *link) tell(to openflow.MAC, f frame.Frame) error {
	i := l.interfaceNow()
	if i == nil {
		return fmt.Errorf("%s: %w", l.name, errDown)
	}
	return l.send([][]byte{f.AppendTo(i.AppendHeader(nil, to, 0))})
}

// receive takes frames that have come by an interface, and gives those that answer them.
func (r *Router) receive(l *link, i *host.Interface, frames []rawlink.Frame, now time.Time) (answers [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range frames {
		if f.Label != 0 || f.From == i.MAC || f.From.IsMulticast() {
			continue // nobody's of the original release
		}
		if a := r.handle(place{l, f.From}, i.MTU, f.Payload, now); a != nil {
			answers = append(answers, a.AppendTo(i.AppendHeader(nil, f.From, 0)))
		}
	}
	return answers
}

// handle takes a frame, and gives its answer, nil for none. r.mu is held.
func (r *Router) handle(at place, mtu int, payload []byte, now time.Time) frame.Frame {
	if len(payload) < 4 || binary.BigEndian.Uint32(payload) > uint32(frame.TypeDeassociate) {
		return nil // a host's of ours
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
			g.heard = now
			return nil
		}
		return r.probed(at, f, now)
	case *frame.Associate:
		r.associated(at, f, now)
		return nil
	}
	g.heard = now
	switch f := f.(type) {
	case *frame.Deassociate:
		if f.Entity == g.GUID.Short() {
			g.depart("it has de-associated")
		}
	case *frame.CSYN:
		return g.announced(f, mtu, now)
	case *frame.Data:
		return g.came(f, now)
	case *frame.CACK:
		g.acknowledged(f, now)
	}
	return nil
}
