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

// lookupParallel is the number of domains that are asked for a name at one time, the nearest first.
const lookupParallel = 2

// lookupDelay is how long the domains that have been asked may take before further ones are asked
// as well.
const lookupDelay = 200 * time.Millisecond

// Options configures Replicas.
type Options struct {
	// Self is the name of this domain, which is one of Domains.
	Self    string
	Domains []Domain
	// K is the number of domains that keep each name; zero selects DefaultK.
	K int
	// Store holds this domain's records.
	Store Store
	// Dir is an existing folder for the file that keeps the progress of sending names over a
	// restart.
	Dir string
	// Log receives the log; nil discards it.
	Log *slog.Logger
}

// Store is the interface of a domain's store of records. Its methods may be called concurrently.
// Errors wrap those of package record.
type Store interface {
	// Get is the method of gnrs.Store.
	Get(b []byte, name frame.GUID) (all []byte, found bool, err error)
	// Since calls f with the names that were written at time t or later, and when they were, until
	// f returns false or ctx ends, which it returns as an error. The order is the store's own; it
	// begins with from, or with the first name if from is zero.
	Since(ctx context.Context, t time.Time, from frame.GUID, f func(name frame.GUID, written time.Time) bool) error
}

// Replicas reaches the name services of other domains. Its methods may be called concurrently.
type Replicas struct {
	Options
	place     Placement // of names among all domains
	peers     []*peer   // by the index of the domain; nil for this one
	self      int
	addrs     map[netip.Addr]bool
	warnLimit lograte.Limit
	slack     time.Duration // progressSlack, except in tests
}

// New returns the Replicas of a name service, and sends nothing yet. The caller has to call Run,
// which closes it. The error wraps ErrDomains.
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

// all returns the other domains.
func (r *Replicas) all() (all []*peer) {
	for _, p := range r.peers {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

// keeps reports whether the domain p keeps a name.
func (r *Replicas) keeps(p *peer, name frame.GUID) bool { return slices.Contains(r.others(name), p) }

// others returns the other domains that keep a name.
func (r *Replicas) others(name frame.GUID) (all []*peer) {
	for _, i := range r.place.Keepers(r.K, name) {
		if i != r.self {
			all = append(all, r.peers[i])
		}
	}
	return all
}

// Keeps reports whether this domain keeps a name.
func (r *Replicas) Keeps(name frame.GUID) bool {
	return slices.Contains(r.place.Keepers(r.K, name), r.self)
}

// Count returns the number of other domains.
func (r *Replicas) Count() int { return len(r.peers) - 1 }

// IsPeer reports whether an address is that of another domain's name service.
func (r *Replicas) IsPeer(a netip.Addr) bool { return r.addrs[a.Unmap()] }

// Changed registers f, which is called with names that were looked up and have changed. It has to
// be called before any lookup. f must not block.
func (r *Replicas) Changed(f func(frame.GUID)) {
	for _, p := range r.all() {
		p.changed = func(name frame.GUID) {
			r.forget(name)
			f(name)
		}
	}
}

// forget removes the cached answers of all domains for a name: one domain knows a newer record, and
// another may not be able to notify this one.
func (r *Replicas) forget(name frame.GUID) {
	for _, p := range r.others(name) {
		p.cache.Forget(name)
	}
}

// lookupResult is the answer of a domain.
type lookupResult struct {
	record *record.Record
	until  time.Time
	err    error
}

// Lookup asks the domains that keep a name until one knows it or ctx ends, and returns until when
// the answer may be cached. The error is a *gnrs.RefusedError with NotFound if all that have
// answered do not know the name, or wraps gnrs.ErrNoAnswer.
func (r *Replicas) Lookup(ctx context.Context, name frame.GUID) (*record.Record, time.Time, error) {
	all := r.others(name)
	distances := map[*peer]time.Duration{}
	for _, p := range all {
		distances[p] = p.cache.Distance()
	}
	slices.SortStableFunc(all, func(a, b *peer) int { return cmp.Compare(distances[a], distances[b]) })
	answers := make(chan lookupResult, len(all))
	asked, waiting := 0, 0
	more := func() { // asks the next domains
		for ; asked < len(all) && waiting < lookupParallel; asked++ {
			p := all[asked]
			waiting++
			go func() { // it ends with ctx, or with the answer or timeout of the peer
				var f lookupResult
				f.record, f.until, f.err = p.cache.LookupUntil(ctx, name)
				answers <- f
			}()
		}
	}
	more()
	late := time.NewTicker(lookupDelay)
	defer late.Stop()
	last := error(fmt.Errorf("%v is kept by no other domain that answers: %w", name, gnrs.ErrNoAnswer))
	if len(all) == 0 {
		last = &gnrs.RefusedError{Kind: gnrswire.Lookup, Code: gnrs.NotFound} // only this domain keeps the name
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

// Written handles a changed record in this domain's store, and sends it to the domains that keep
// the name, unless another domain has brought the record.
func (r *Replicas) Written(name frame.GUID, brought bool) {
	r.forget(name)
	if brought {
		return
	}
	for _, p := range r.others(name) {
		p.written(name)
	}
}

// Peer describes another domain.
type Peer struct {
	Domain
	// RoundTrip is the mean round-trip time; zero if the domain has not answered yet.
	RoundTrip time.Duration
	// Silent means that the domain did not answer the last request.
	Silent bool
	// Behind is the number of names that still have to be sent to it.
	Behind int
}

// Peers returns the other domains.
func (r *Replicas) Peers() (all []Peer) {
	for _, p := range r.all() {
		trip, silent := p.cache.RoundTrip()
		all = append(all, Peer{p.Domain, trip, silent, p.count()})
	}
	return all
}

// Run sends names to the other domains until ctx ends or the store fails, and then closes Replicas.
func (r *Replicas) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for _, p := range r.all() {
		all.Go(func() { p.run(ctx) })
	}
	err := r.catchUp(ctx)
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
