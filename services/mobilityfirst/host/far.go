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
	// farLink is the name of the link to far hosts.
	farLink = "udp"
	// lookUpAfter is how often a path is requested on the host's links, if there are any, before
	// the name service is asked.
	lookUpAfter = 1
	// maxFarAddresses limits the addresses of one name that a request is sent to.
	maxFarAddresses = 8
	// addressInterval is the time between checks of the host's address when no change is reported.
	addressInterval = 250 * time.Millisecond
	// A name is published again after publishInterval, and a publication is valid for
	// publicationLifetime. A failed publication is repeated after publishRetry. Each attempt takes
	// publishTimeout at most.
	publishInterval, publicationLifetime, publishRetry, publishTimeout = 5 * time.Minute, 15 * time.Minute, 5 * time.Second, 3 * time.Second
	// publishPause is the pause between two publications, because a name service limits the new
	// names per second of one host.
	publishPause = 60 * time.Millisecond
	// leaveTimeout limits the time that a host takes at its end to withdraw its names. It withdraws
	// leaveParallel names at one time, and tries a failed withdrawal again after leaveRetry.
	leaveTimeout, leaveRetry, leaveParallel = 2 * time.Second, 200 * time.Millisecond, 16
	// leaveTries is how often the withdrawal of a name is tried: a service that still refuses it
	// has a newer record.
	leaveTries = 10
	// maxGone limits the detached names whose withdrawal is pending.
	maxGone = 256
)

// Far reaches names that are on none of the host's links: by UDP, at the addresses that the name
// service returns for them.
type Far struct {
	// Addr returns the address at which others reach this host now, with an even port (package
	// udplink).
	Addr func() (netip.AddrPort, error)
	// Names is the name service.
	Names Names
}

// Names is the interface of a name service that a host needs. The methods may be called
// concurrently.
type Names interface {
	// Addresses returns the addresses of a name, as its owner has published them.
	Addresses(ctx context.Context, name frame.GUID) ([]netip.AddrPort, error)
	// Publish publishes the addresses of the name of a key; without addresses it withdraws the
	// name. The number must be higher than any before.
	Publish(ctx context.Context, key ed25519.PrivateKey, number uint64, until time.Time, at ...netip.AddrPort) error
	// Changed registers f, which is called when a name that was asked for has moved. f must not
	// block.
	Changed(f func(frame.GUID))
}

// far is the state of a running Far.
type far struct {
	*Far
	host      *Host
	link      *link
	due       chan struct{} // signals that a name has to be published
	gone      []publication // withdrawals of detached names
	warnLimit lograte.Limit
	work      *tasks.Group // nil while the host does not run
}

func newFar(h *Host) *far {
	f := &far{Far: h.Far, host: h, link: newLink(h, farLink), due: make(chan struct{}, 1)}
	f.Names.Changed(f.nameMoved)
	return f
}

// run starts publishing and allows lookups.
func (f *far) run(work *tasks.Group) {
	f.host.mu.Lock()
	f.work = work
	f.host.mu.Unlock()
	work.Start(f.publish)
}

// open opens the link to far hosts at the host's current address. The link ends when the address
// changes.
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

// watch closes the link to far hosts when the host's address changes, until ctx ends.
func (f *far) watch(ctx context.Context, i *Interface) {
	for ctx.Err() == nil {
		f.link.awaitChange(ctx, addressInterval)
		if at, err := f.Addr(); err == nil && at != udplink.Addr(i.MAC) {
			_ = i.Close() // the receiving goroutine ends
			f.link.notifyChanged()
			return
		}
	}
}

// lookUp asks the name service for the name's addresses, and requests a path there. The host is
// locked.
func (o *outgoing) lookUp() {
	f := o.host.far
	if f == nil || f.work == nil || o.lookingUp || !f.link.up || o.host.isNear(o.to) {
		return
	}
	o.lookingUp = f.work.Start(func(ctx context.Context) {
		at, err := f.Names.Addresses(ctx, o.to)
		f.host.mu.Lock()
		defer f.host.mu.Unlock()
		if o.lookingUp = false; err != nil {
			return // the next request asks again
		}
		o.requestAt(at)
	})
}

// isNear reports whether a name is only searched on the links.
func (h *Host) isNear(name frame.GUID) bool { return slices.Contains(h.Near, name) }

// near reports whether there is a link with other hosts on it. The host is locked.
func (h *Host) near() bool {
	return slices.ContainsFunc(h.links, func(l *link) bool { return l.up && l.name != "" && !l.isFar() })
}

// isFar reports whether a link is the one to far hosts.
func (l *link) isFar() bool {
	return l != nil && l.name == farLink && l.host.far != nil && l.host.far.link == l
}

// requestAt requests a path at addresses, unless one was found meanwhile. The host is locked.
func (o *outgoing) requestAt(at []netip.AddrPort) {
	l := o.host.far.link
	if o.request == 0 || o.host.outgoing[o.streamKey] != o || !l.up {
		return
	}
	for _, a := range at[:min(len(at), maxFarAddresses)] {
		if a.Addr().IsLoopback() && !o.host.far.addr().Addr().IsLoopback() {
			continue // another host's loopback address
		}
		if mac, err := udplink.MAC(a); err == nil && mac != l.MAC {
			l.sendControl(mac, 0, o.pathRequest(l))
		}
	}
}

// nameMoved requests a path to a name that has moved. If a path was requested just now, nameMoved
// waits, so that hosts on the links can answer first.
func (f *far) nameMoved(name frame.GUID) {
	h := f.host
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for _, e := range h.names {
		o := h.outgoing[streamKey{from: e.Name, to: name}]
		if o == nil || !o.hasWork() || o.path != nil && o.path.link != f.link || !h.limits.induced.AllowN(now, 1) {
			continue
		}
		o.attempts = max(o.attempts, lookUpAfter)
		if answered := o.askedAt.Add(initialRetry); o.path == nil && now.Before(answered) {
			o.nextRequest = answered
			o.schedule(now)
		} else {
			o.requestPath(now)
		}
	}
}

// triggerPublish wakes publish. The host is locked.
func (f *far) triggerPublish() {
	if f == nil {
		return
	}
	select {
	case f.due <- struct{}{}:
	default:
	}
}

// withdraw publishes that a detached name has no address. The host is locked.
func (f *far) withdraw(e *Endpoint) {
	if f != nil && e.publication > 0 && len(f.gone) < maxGone {
		f.gone = append(f.gone, publication{key: e.key, number: e.publication + 1}) // a later record of another host has a higher number
		f.triggerPublish()
	}
}

// leave withdraws the names of a host that has ended, so that other hosts do not ask for them in
// vain.
func (f *far) leave(ctx context.Context) {
	if f == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	f.host.mu.Lock()
	gone := f.gone
	f.gone = nil
	f.host.mu.Unlock()
	until := time.Now().Add(publicationLifetime)
	tasks.Each(gone, leaveParallel, func(p publication) {
		for ; p.tries < leaveTries && ctx.Err() == nil; p.tries++ {
			err := f.Names.Publish(ctx, p.key, p.number, until)
			if err == nil {
				return
			}
			f.warnLimit.Warn(f.host.Log, "the name service does not accept the withdrawal of a name", "name", record.NameOfOwner(p.key), "error", err)
			_ = tasks.Sleep(ctx, leaveRetry)
		}
	})
}

// publish publishes where names are, until ctx ends.
func (f *far) publish(ctx context.Context) {
	timer := time.NewTimer(publishInterval)
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

// later puts the withdrawals among the given publications back into gone, so that leave publishes
// them.
func (f *far) later(all []publication) {
	f.host.mu.Lock()
	defer f.host.mu.Unlock()
	for _, p := range all {
		if p.endpoint == nil {
			f.gone = append(f.gone, p)
		}
	}
}

// publication is a pending publication of a name.
type publication struct {
	key      ed25519.PrivateKey
	endpoint *Endpoint // nil for a withdrawal
	number   uint64    // the number of the withdrawal
	tries    int       // failed attempts
}

// publications returns the publications that are due.
func (f *far) publications(now time.Time) []publication {
	f.host.mu.Lock()
	defer f.host.mu.Unlock()
	all := f.gone
	f.gone = nil
	if !f.link.up {
		return all
	}
	for _, e := range f.host.names {
		if !f.host.isNear(e.Name) && (e.publishedAddr != f.addr() || now.Sub(e.publishedAt) >= publishInterval) {
			all = append(all, publication{key: e.key, endpoint: e})
		}
	}
	return all
}

// publishOne publishes the current address of a name.
func (f *far) publishOne(ctx context.Context, p publication) {
	now := time.Now()
	at, current := f.prepare(&p, now)
	if !current {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	err := f.Names.Publish(ctx, p.key, p.number, now.Add(publicationLifetime), at...)
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		f.warnLimit.Warn(f.host.Log, "the name service does not accept the addresses of a name", "name", record.NameOfOwner(p.key), "error", err)
	}
	f.host.mu.Lock()
	defer f.host.mu.Unlock()
	switch {
	case p.endpoint != nil && err == nil:
		p.endpoint.publishedAddr, p.endpoint.publishedAt = at[0], now
	case p.endpoint == nil && err != nil && p.tries < leaveTries && len(f.gone) < maxGone:
		p.tries++
		f.gone = append(f.gone, p)
	}
}

// prepare returns the current address of a name and numbers its publication. ok is false if the
// name was attached or detached meanwhile.
func (f *far) prepare(p *publication, now time.Time) (at []netip.AddrPort, ok bool) {
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
	return []netip.AddrPort{f.addr()}, true
}

// addr returns the address of the link, which must be up. The host is locked.
func (f *far) addr() netip.AddrPort { return udplink.Addr(f.link.MAC) }

// nextPublication returns the time until the next publication is due. The host is locked.
func (f *far) nextPublication(now time.Time) time.Duration {
	next := publishInterval
	if len(f.gone) > 0 {
		next = publishRetry
	}
	for _, e := range f.host.names {
		if f.host.isNear(e.Name) {
			continue
		}
		if f.link.up && e.publishedAddr != f.addr() {
			return publishRetry
		}
		next = min(next, publishInterval-now.Sub(e.publishedAt))
	}
	return max(next, publishRetry)
}
