package domain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/store"
)

// records holds the records of devices, in memory and in the store.
type records struct {
	self  string
	store store.Store
	now   func() time.Time

	mu    sync.Mutex
	locks map[string]*deviceLock
	all   map[string]*Record
	byMAC map[openflow.MAC]string
}

// newRecords returns records without any device.
func newRecords(self string, st store.Store, now func() time.Time) *records {
	return &records{self: self, store: st, now: now, locks: map[string]*deviceLock{}, all: map[string]*Record{}, byMAC: map[openflow.MAC]string{}}
}

// deviceLock is held while a device's record or its rules change. It is never held while a
// neighbour is asked, because two domains could then wait for each other.
type deviceLock struct {
	held  chan struct{}
	users int
}

// lock waits for the device's lock.
func (x *records) lock(ctx context.Context, id string) (unlock func(), err error) {
	x.mu.Lock()
	l := x.locks[id]
	if l == nil {
		l = &deviceLock{held: make(chan struct{}, 1)}
		x.locks[id] = l
	}
	l.users++
	x.mu.Unlock()
	leave := func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(x.locks, id)
		}
	}
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("wait for device %s: %w", id, ctx.Err())
	}
}

// with calls f with a copy of the device's record, or nil, under the device's lock.
func (x *records) with(ctx context.Context, id string, f func(*Record) error) error {
	unlock, err := x.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	return f(x.get(id))
}

// get returns a copy of the device's record, or nil.
func (x *records) get(id string) *Record {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.all[id]
	if r == nil {
		return nil
	}
	c := r.clone()
	return &c
}

// ofMAC returns a copy of the record of the device with the hardware address, or nil.
func (x *records) ofMAC(mac openflow.MAC) *Record {
	x.mu.Lock()
	id := x.byMAC[mac]
	x.mu.Unlock()
	return x.get(id)
}

// set makes the record visible, without writing it.
func (x *records) set(r *Record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if old := x.all[r.ID]; old != nil {
		for _, m := range old.MACs {
			delete(x.byMAC, m)
		}
	}
	if r.disposable(x.self) {
		delete(x.all, r.ID)
		return
	}
	r.Changed = x.now()
	c := r.clone()
	x.all[r.ID] = &c
	for _, m := range c.MACs {
		x.byMAC[m] = r.ID
	}
}

// count returns, for a neighbour, how many of its devices are here, how many devices' packets go
// to it, and how many messages still have to reach it.
func (x *records) count(name string) (visitors, abroad, outbox int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, r := range x.all {
		if !r.Gone && r.Home != x.self && (r.Upstream == name || r.incoming(name) != nil) {
			visitors++
		}
		if r.Downstream == name {
			abroad++
		}
		for _, o := range r.Outbox {
			if o.Peer == name {
				outbox++
			}
		}
	}
	return visitors, abroad, outbox
}

// overdue returns the devices whose move is past its deadline.
func (x *records) overdue() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.now()
	var ids []string
	for id, r := range x.all {
		if r.Move != nil && now.After(r.Move.Deadline) {
			ids = append(ids, id)
		}
	}
	return ids
}

// roaming returns all devices that have a record.
func (x *records) roaming() []Roaming {
	x.mu.Lock()
	defer x.mu.Unlock()
	list := make([]Roaming, 0, len(x.all))
	for _, r := range x.all {
		v := Roaming{
			ID: r.ID, Home: r.Home, IP: r.IP.String(), Upstream: r.Upstream, Downstream: r.Downstream,
			Host: r.Host, Outbox: len(r.Outbox), Changed: r.Changed,
		}
		if m := r.Move; m != nil {
			deadline := m.Deadline
			v.Stage, v.Peer, v.Deadline = m.Stage, m.Peer, &deadline
		}
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b Roaming) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// storePrefix begins the store's keys of records.
const storePrefix = "handover/domain/"

// save writes the record, or deletes it if it is disposable.
func (x *records) save(ctx context.Context, r *Record) error {
	key := storePrefix + r.ID
	if !r.disposable(x.self) {
		return store.PutJSON(ctx, x.store, key, r)
	}
	if err := x.store.Delete(ctx, key); err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return nil
}

// load reads the records from before a restart, and the keys of those that cannot be read. A
// device without its record can still come back by its own request.
func (x *records) load(ctx context.Context) (known []Record, unreadable []string, err error) {
	entries, err := x.store.List(ctx, storePrefix)
	if err != nil {
		return nil, nil, fmt.Errorf("list the records of roaming devices: %w", err)
	}
	for _, e := range entries {
		var r Record
		if err := json.Unmarshal(e.Value, &r); err != nil || storePrefix+r.ID != e.Key || r.Visitor.check() != nil {
			unreadable = append(unreadable, e.Key)
			continue
		}
		known = append(known, r)
	}
	return known, unreadable, nil
}
