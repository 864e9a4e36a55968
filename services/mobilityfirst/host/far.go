package host

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
	"github.com/sluice-net/sluice/services/mobilityfirst/udplink"
)

const (
	// farLink is the name of the link by which far hosts are reached.
	farLink = "udp"
	// lookAfter is how often a way is asked for on the host's links, if it has some, before it is looked up where the
	// name is.
	lookAfter = 1
	// maxFar is at how many addresses a name is asked for.
	maxFar = 8
	// addressEvery is how often it is looked whether the host has another address, also if nothing tells.
	addressEvery = 250 * time.Millisecond
	// A name is published again after publishEvery, and what is published holds for publishedFor. Where that fails
	// it is tried again after publishAgain, and one takes publishWithin at most.
	publishEvery, publishedFor, publishAgain, publishWithin = 5 * time.Minute, 15 * time.Minute, 5 * time.Second, 3 * time.Second
	// publishPause is between one and the next: a service takes so many new names from one host.
	publishPause = 60 * time.Millisecond
	// leaveWithin is how long a host that ends takes to have it published that its names are nowhere, leaveAtOnce of them at one time.
	leaveWithin, leavePause, leaveAtOnce = 2 * time.Second, 200 * time.Millisecond, 16
	// leaveTries is how often that is tried of a name again: a service that refuses it has something newer.
	leaveTries = 10
	// maxGone is of how many names that were detached it is still to be published that they are nowhere.
	maxGone = 256
)

// Far is how a host reaches names that are on none of its links: by UDP, at the addresses where the name service says
// that they are.
type Far struct {
	// Addr is where others reach this host now, with an even port (package udplink).
	Addr func() (netip.AddrPort, error)
	// Names is the name service.
	Names Names
}

// Names is what a host needs of a name service. The methods may be called concurrently.
type Names interface {
	// Addresses says where a name is, as its owner has published it.
	Addresses(ctx context.Context, name frame.GUID) ([]netip.AddrPort, error)
	// Publish says where the name of a key is; nowhere, if there are no addresses. The number is higher than
	// any before.
	Publish(ctx context.Context, key ed25519.PrivateKey, number uint64, until time.Time, at ...netip.AddrPort) error
	// Changed has f called when a name that was asked for is elsewhere. f must not block.
	Changed(f func(frame.GUID))
}

// far is Far at work.
type far struct {
	*Far
	host    *Host
	link    *link
	due     chan struct{} // that a name is to be published
	gone    []publication // names that were detached
	trouble lograte.Limit
	work    *tasks.Group // nil while the host does not run
}

func newFar(h *Host) *far {
	f := &far{Far: h.Far, host: h, link: newLink(h, farLink), due: make(chan struct{}, 1)}
	f.Names.Changed(f.elsewhere)
	return f
}

// run begins to publish, and to look names up.
func (f *far) run(work *tasks.Group) {
	f.host.mu.Lock()
	f.work = work
	f.host.mu.Unlock()
	work.Start(f.publish)
}

// open opens the link to far hosts at the address that the host has now. It ends when that is another.
func (f *far) open() (*Interface, error) {
	at, err := f.Addr()
	if err != nil {
		return nil, err
	}
	mac, err := udplink.MAC(at)
	if err != nil {
		return nil, err
	}
	s, err := udplink.Open(at)
	if err != nil {
		return nil, err
	}
	return &Interface{MAC: mac, MTU: s.MTU, Socket: s}, nil
}

// watch closes the link to far hosts when the host has another address, until ctx ends.
func (f *far) watch(ctx context.Context, i *Interface) {
	for ctx.Err() == nil {
		f.link.await(ctx, addressEvery)
		if at, err := f.Addr(); err == nil && at != udplink.Addr(i.MAC) {
			_ = i.Close() // who receives finds out
			f.link.poke()
			return
		}
	}
}

// look has a way to a name looked for where the name service says that it is. The host is locked.
func (o *outgoing) look() {
	f := o.host.far
	if f == nil || f.work == nil || o.looking || !f.link.up || o.host.isNear(o.to) {
		return
	}
	o.looking = f.work.Start(func(ctx context.Context) {
		at, err := f.Names.Addresses(ctx, o.to)
		f.host.mu.Lock()
		defer f.host.mu.Unlock()
		if o.looking = false; err != nil {
			return // it is asked again with the next request
		}
		o.askAt(at)
	})
}

// isNear says whether a name is found on the links alone.
func (h *Host) isNear(name frame.GUID) bool { return slices.Contains(h.Near, name) }

// near says whether there is a link on which others may be. The host is locked.
func (h *Host) near() bool {
	return slices.ContainsFunc(h.links, func(l *link) bool { return l.up && l.name != "" && !l.isFar() })
}

// isFar says whether a link is the one to far hosts.
func (l *link) isFar() bool {
	return l != nil && l.name == farLink && l.host.far != nil && l.host.far.link == l
}

// askAt asks for a way at addresses, unless one was found meanwhile. The host is locked.
func (o *outgoing) askAt(at []netip.AddrPort) {
	l := o.host.far.link
	if o.request == 0 || o.host.out[o.way] != o || !l.up {
		return
	}
	for _, a := range at[:min(len(at), maxFar)] {
		if a.Addr().IsLoopback() && !o.host.far.at().Addr().IsLoopback() {
			continue // nobody's business there
		}
		if mac, err := udplink.MAC(a); err == nil && mac != l.MAC {
			l.tell(mac, 0, o.asking(l))
		}
	}
}

// elsewhere has a way to a name asked for that is elsewhere than before. Where it was asked for just now, hosts on the links may answer first.
func (f *far) elsewhere(name frame.GUID) {
	h := f.host
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for _, e := range h.names {
		o := h.out[way{from: e.Name, to: name}]
		if o == nil || !o.wanted() || o.path != nil && o.path.link != f.link || !h.limits.induced.AllowN(now, 1) {
			continue
		}
		o.asks = max(o.asks, lookAfter)
		if answered := o.asked.Add(firstAsk); o.path == nil && now.Before(answered) {
			o.nextAsk = answered
			o.schedule(now)
		} else {
			o.ask(now)
		}
	}
}

// toPublish has names published. The host is locked.
func (f *far) toPublish() {
	if f == nil {
		return
	}
	select {
	case f.due <- struct{}{}:
	default:
	}
}

// withdraw has it published that a name which was detached is nowhere. The host is locked.
func (f *far) withdraw(e *Endpoint) {
	if f != nil && e.publication > 0 && len(f.gone) < maxGone {
		f.gone = append(f.gone, publication{key: e.key, number: e.publication + 1}) // which is behind what another host says
		f.toPublish()
	}
}

// leave publishes that the names of a host that has ended are nowhere: who sends to them need not ask in vain.
func (f *far) leave(ctx context.Context) {
	if f == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveWithin)
	defer cancel()
	f.host.mu.Lock()
	gone := f.gone
	f.gone = nil
	f.host.mu.Unlock()
	until := time.Now().Add(publishedFor)
	tasks.Each(gone, leaveAtOnce, func(p publication) {
		for ; p.tries < leaveTries && ctx.Err() == nil; p.tries++ {
			err := f.Names.Publish(ctx, p.key, p.number, until)
			if err == nil {
				return
			}
			f.trouble.Warn(f.host.Log, "the name service does not take that a name is nowhere", "name", record.NameOfOwner(p.key), "error", err)
			_ = tasks.Sleep(ctx, leavePause)
		}
	})
}

// publish says where names are, until ctx ends.
func (f *far) publish(ctx context.Context) {
	timer := time.NewTimer(publishEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.due:
		case <-timer.C:
		}
		all := f.publications(time.Now())
		for i, p := range all {
			if f.publishOne(ctx, p); tasks.Sleep(ctx, publishPause) != nil {
				f.later(all[i+1:])
				return
			}
		}
		f.host.mu.Lock()
		next := f.nextPublication(time.Now())
		f.host.mu.Unlock()
		timer.Reset(next)
	}
}

// later leaves names that are nowhere for leave to publish.
func (f *far) later(all []publication) {
	f.host.mu.Lock()
	defer f.host.mu.Unlock()
	for _, p := range all {
		if p.endpoint == nil {
			f.gone = append(f.gone, p)
		}
	}
}

// publication is what is to be published of a name.
type publication struct {
	key      ed25519.PrivateKey
	endpoint *Endpoint // nil for a name that is nowhere
	number   uint64    // of that
	tries    int       // that were in vain
}

// publications are those that are due.
func (f *far) publications(now time.Time) []publication {
	f.host.mu.Lock()
	defer f.host.mu.Unlock()
	all := f.gone
	f.gone = nil
	if !f.link.up {
		return all
	}
	for _, e := range f.host.names {
		if !f.host.isNear(e.Name) && (e.publishedAt != f.at() || now.Sub(e.published) >= publishEvery) {
			all = append(all, publication{key: e.key, endpoint: e})
		}
	}
	return all
}

// publishOne publishes a name where it is now.
func (f *far) publishOne(ctx context.Context, p publication) {
	now := time.Now()
	at, current := f.current(&p, now)
	if !current {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, publishWithin)
	defer cancel()
	err := f.Names.Publish(ctx, p.key, p.number, now.Add(publishedFor), at...)
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		f.trouble.Warn(f.host.Log, "the name service does not take where a name is", "name", record.NameOfOwner(p.key), "error", err)
	}
	f.host.mu.Lock()
	defer f.host.mu.Unlock()
	switch {
	case p.endpoint != nil && err == nil:
		p.endpoint.publishedAt, p.endpoint.published = at[0], now
	case p.endpoint == nil && err != nil && p.tries < leaveTries && len(f.gone) < maxGone:
		p.tries++
		f.gone = append(f.gone, p)
	}
}

// current says where a name is now, unless it was attached or detached meanwhile, and gives what is published a number.
func (f *far) current(p *publication, now time.Time) (at []netip.AddrPort, is bool) {
	f.host.mu.Lock()
	defer f.host.mu.Unlock()
	e := p.endpoint
	if e == nil {
		return nil, f.host.names[record.NameOfOwner(p.key)] == nil
	}
	if e.isClosed() || !f.link.up {
		return nil, false
	}
	e.publication = max(e.publication+1, uint64(now.UnixNano()))
	p.number = e.publication
	return []netip.AddrPort{f.at()}, true
}

// at is the address of the link, which has to be up. The host is locked.
func (f *far) at() netip.AddrPort { return udplink.Addr(f.link.MAC) }

// nextPublication is how long there is nothing to publish. The host is locked.
func (f *far) nextPublication(now time.Time) time.Duration {
	next := publishEvery
	if len(f.gone) > 0 {
		next = publishAgain
	}
	for _, e := range f.host.names {
		if f.host.isNear(e.Name) {
			continue
		}
		if f.link.up && e.publishedAt != f.at() {
			return publishAgain
		}
		next = min(next, publishEvery-now.Sub(e.published))
	}
	return max(next, publishAgain)
}
