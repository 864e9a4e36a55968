package replicas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrs"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// together is how many domains are asked for a name at one time, the nearest first.
const together = 2

// lateAfter is how long they may take before the next are asked, too.
const lateAfter = 200 * time.Millisecond

// Options is what Replicas works with.
type Options struct {
	// Self is the name of this domain, which is one of Domains.
	Self    string
	Domains []Domain
	// K is how many domains keep each name; zero for DefaultK.
	K int
	// Store has this domain's records.
	Store Store
	// Dir is a folder that is there, in which this has a file of its own.
	Dir string
	// Log receives the log; nil discards it.
	Log *slog.Logger
}

// Store has the records of a domain. Its methods may be called concurrently. Errors wrap those of package record.
type Store interface {
	// Get is that of gnrs.Store.
	Get(b []byte, name frame.GUID) (all []byte, found bool, err error)
	// Since gives f the names that were written from a time on, and when, until f returns false or ctx ends, of which the error
	// tells: in an order of the store's own, in which it begins with from, or with the first if that is zero.
	Since(ctx context.Context, t time.Time, from frame.GUID, f func(name frame.GUID, written time.Time) bool) error
}

// Replicas are the name services of other domains. Its methods may be called concurrently.
type Replicas struct {
	Options
	place Placement // of names among all domains
	peers []*peer   // by the number of the domain; nil for this one
	self  int
	addrs map[netip.Addr]bool
	lines lograte.Limit
	slack time.Duration // progressSlack, but for tests
}

// New makes the others of a name service, and sends nothing yet. The error wraps ErrDomains. Run has to be called, which
// closes it.
func New(o Options) (*Replicas, error) {
	o.K = cmp.Or(o.K, DefaultK)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := Check(o.Domains, o.Self, o.K); err != nil {
		return nil, err
	}
	r := &Replicas{Options: o, addrs: map[netip.Addr]bool{}, slack: progressSlack}
	local := o.Domains[slices.IndexFunc(o.Domains, func(d Domain) bool { return d.Name == o.Self })].Addr.Addr()
	for i, d := range o.Domains {
		r.place = append(r.place, seed(d.Name))
		if d.Name == o.Self {
			r.self, r.peers = i, append(r.peers, nil)
			continue
		}
		p, err := newPeer(d, local, len(o.Domains), o)
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		r.peers = append(r.peers, p)
		r.addrs[d.Addr.Addr().Unmap()] = true
	}
	return r, nil
}

// all are the other domains.
func (r *Replicas) all() (all []*peer) {
	for _, p := range r.peers {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

// keeps says whether another domain is one of those that keep a name.
func (r *Replicas) keeps(p *peer, name frame.GUID) bool { return slices.Contains(r.others(name), p) }

// others are those of the domains that keep a name, but for this one.
func (r *Replicas) others(name frame.GUID) (all []*peer) {
	for _, i := range r.place.Keepers(r.K, name) {
		if i != r.self {
			all = append(all, r.peers[i])
		}
	}
	return all
}

// Keeps says whether this domain is one of those that keep a name.
func (r *Replicas) Keeps(name frame.GUID) bool {
	return slices.Contains(r.place.Keepers(r.K, name), r.self)
}

// IsPeer says whether an address is that of another domain's name service.
func (r *Replicas) IsPeer(a netip.Addr) bool { return r.addrs[a.Unmap()] }

// Changed has f told of names that were asked for and have changed. It is to be called before anything is asked. f must
// not block.
func (r *Replicas) Changed(f func(frame.GUID)) {
	for _, p := range r.all() {
		p.changed = func(name frame.GUID) {
			r.forget(name)
			f(name)
		}
	}
}

// forget has what domains have answered about a name not be used any more: one of them, or this one, knows something newer,
// and another may not be able to tell.
func (r *Replicas) forget(name frame.GUID) {
	for _, p := range r.others(name) {
		p.cache.Forget(name)
	}
}

// found is what a domain has answered.
type found struct {
	record *record.Record
	until  time.Time
	err    error
}

// Lookup asks the domains that keep a name where it is, until one knows it or ctx ends, and says until when that may be
// kept. The error is a *gnrs.RefusedError with NotFound if all that have answered say so, or wraps gnrs.ErrNoAnswer.
func (r *Replicas) Lookup(ctx context.Context, name frame.GUID) (*record.Record, time.Time, error) {
	all := r.others(name)
	distances := map[*peer]time.Duration{}
	for _, p := range all {
		distances[p] = p.cache.Distance()
	}
	slices.SortStableFunc(all, func(a, b *peer) int { return cmp.Compare(distances[a], distances[b]) })
	answers := make(chan found, len(all))
	asked, waiting := 0, 0
	more := func() { // asks the next
		for ; asked < len(all) && waiting < together; asked++ {
			p := all[asked]
			waiting++
			go func() { // ends with ctx, or when the peer has answered or not
				var f found
				f.record, f.until, f.err = p.cache.LookupUntil(ctx, name)
				answers <- f
			}()
		}
	}
	more()
	late := time.NewTicker(lateAfter)
	defer late.Stop()
	last := error(fmt.Errorf("%v is kept by no other domain that answers: %w", name, gnrs.ErrNoAnswer))
	if len(all) == 0 {
		last = &gnrs.RefusedError{Kind: gnrswire.Lookup, Code: gnrs.NotFound} // this one keeps it alone
	}
	for left := len(all); left > 0; {
		select {
		case f := <-answers:
			left--
			waiting = max(waiting-1, 0)
			if f.err == nil {
				return f.record, f.until, nil
			}
			if refused := (*gnrs.RefusedError)(nil); errors.As(f.err, &refused) && refused.Code == gnrs.NotFound {
				last = f.err
			}
			more()
		case <-late.C:
			waiting = 0
			more()
		case <-ctx.Done():
			return nil, time.Time{}, last
		}
	}
	return nil, time.Time{}, last
}

// Written notes that this domain has something new of a name, and has it passed on to the domains that keep it, unless one of
// them has brought it.
func (r *Replicas) Written(name frame.GUID, brought bool) {
	r.forget(name)
	if brought {
		return
	}
	for _, p := range r.others(name) {
		p.written(name)
	}
}

// Peer is what is known of another domain.
type Peer struct {
	Domain
	// Trip is its mean round trip; zero if it has not answered yet.
	Trip time.Duration
	// Silent says that it did not answer when it was asked last.
	Silent bool
	// Behind is how many names are to be passed on to it yet.
	Behind int
}

// Peers are the other domains.
func (r *Replicas) Peers() (all []Peer) {
	for _, p := range r.all() {
		trip, silent := p.cache.RoundTrip()
		all = append(all, Peer{p.Domain, trip, silent, p.count()})
	}
	return all
}

// Run passes names on until ctx ends or that fails, and closes what New has opened.
func (r *Replicas) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for _, p := range r.all() {
		all.Go(func() { p.run(ctx) })
	}
	err := r.keepUp(ctx)
	cancel()
	all.Wait()
	return errors.Join(err, r.close())
}

func (r *Replicas) close() error {
	var errs []error
	for _, p := range r.all() {
		errs = append(errs, p.cache.Close())
	}
	return errors.Join(errs...)
}
