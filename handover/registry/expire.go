package registry

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/store"
)

const (
	// forgetLearned is how long a device that nobody registered is remembered
	// after its lease has ended.
	forgetLearned = time.Hour
	// forgetVisitor is how long a visitor is expected before it has a lease, and
	// remembered after that has ended.
	forgetVisitor = 10 * time.Minute
	// expireBatch is how many devices are written at once.
	expireBatch = 32
)

// Expire ends the leases whose time has run out and returns them as they were,
// with their attachments. It has to be called regularly: until it has reported a
// lease, nobody else gets the address, and some seconds more, in which the
// device's rules are to be removed. It also forgets visitors and devices that were
// learned when nothing was heard of them for long; of a visitor that never had a
// lease it returns a released one. It writes renewals for which there was no room before. An error means that some have to wait for the
// next call.
func (r *Registry) Expire(ctx context.Context, now time.Time) ([]Lease, error) {
	var ended []Lease
	for candidates := r.over(now); len(candidates) > 0; {
		n := min(len(candidates), expireBatch)
		more, err := r.expire(ctx, candidates[:n], now)
		if err != nil {
			return ended, fmt.Errorf("end leases: %w", err)
		}
		ended = append(ended, more...)
		candidates = candidates[n:]
	}
	if err := r.writeRenewed(ctx); err != nil {
		return ended, err
	}
	return ended, r.expireDeclined(ctx, now)
}

// over returns the devices of which something is over.
func (r *Registry) over(now time.Time) []*record {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var out []*record
	for _, rec := range r.devices {
		if rec.ended(now) || r.forgotten(rec, now) {
			out = append(out, rec)
		}
	}
	return out
}

// ended says whether the lease's time has run out.
func (rec *record) ended(now time.Time) bool { return rec.holds() && !rec.lease.Active(now) }

// forgotten says whether the device is to be forgotten.
func (r *Registry) forgotten(rec *record, now time.Time) bool {
	idle := now.Sub(rec.idle)
	switch {
	case rec.holds():
		return false
	case rec.device.Home != "":
		return idle >= forgetVisitor
	case !rec.device.Learned:
		return false
	case !rec.stored:
		a := r.addrs[rec.offer]
		return idle >= offerHold && (a == nil || a.device != rec.device.ID || !now.Before(a.until))
	}
	return idle >= forgetLearned || !rec.lease.IP.IsValid()
}

// expire ends what is over for the devices, all or nothing. Devices that are
// being changed just now are left for the next time.
func (r *Registry) expire(ctx context.Context, recs []*record, now time.Time) ([]Lease, error) {
	var ops []store.Op
	var held, gone []*record
	for _, rec := range recs {
		if !rec.write.TryLock() {
			continue
		}
		defer rec.write.Unlock()
		r.mu.RLock()
		id, l, stored := rec.device.ID, rec.lease, rec.stored
		forget, end := !rec.gone && r.forgotten(rec, now), !rec.gone && rec.ended(now)
		r.mu.RUnlock()
		switch {
		case forget:
			gone = append(gone, rec)
			if stored {
				ops = append(ops, store.OpDelete(keyGuest+id), store.OpDelete(keyLease+id))
			}
		case end:
			l.Released, l.Attachment = true, nil
			op, err := put(keyLease+id, l)
			if err != nil {
				return nil, err
			}
			held, ops = append(held, rec), append(ops, op)
		}
	}
	if len(ops) > 0 {
		if err := r.apply(ctx, ops...); err != nil {
			return nil, err
		}
	}
	return r.finish(held, gone), nil
}

// finish makes what has been written visible and returns the leases that ended.
func (r *Registry) finish(held, gone []*record) []Lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ended []Lease
	for _, rec := range held {
		l := rec.lease
		ended = append(ended, l)
		l.Released, l.Attachment = true, nil
		r.setLease(rec, l)
	}
	for _, rec := range gone {
		if d := rec.device; d.Home != "" && !rec.lease.IP.IsValid() {
			ended = append(ended, Lease{Device: d.ID, IP: d.IP, Pool: d.Pool, Released: true})
		}
		r.forget(rec)
	}
	return ended
}

// expireDeclined forgets the addresses whose quarantine is over.
func (r *Registry) expireDeclined(ctx context.Context, now time.Time) error {
	var over []netip.Addr
	r.mu.RLock()
	for ip, q := range r.declined {
		if !now.Before(q.Until) {
			over = append(over, ip)
		}
	}
	r.mu.RUnlock()
	for _, ip := range over {
		if err := r.delete(ctx, keyDecline+ip.String()); err != nil {
			return fmt.Errorf("end the quarantine of %v: %w", ip, err)
		}
		r.mu.Lock()
		delete(r.declined, ip)
		r.mu.Unlock()
	}
	return nil
}
