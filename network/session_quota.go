package network

import (
	"fmt"
	"reflect"
	"sync"
	"time"
)

// quota bounds the memory that all sessions together take for what their switches send and
// are sent: replies from their first part until whoever asked is done with them, queues of
// output, packets held for services. Each session has a share whatever others take. What it
// takes beyond its share comes out of a limit for all. Where that is used up, the session
// that takes most is ended.
type quota struct {
	limit int64

	mu       sync.Mutex
	shared   int64 // what all take beyond their shares
	evicting int64 // how much of it is of sessions that are being ended
	accounts map[*account]struct{}
	freed    chan struct{} // closed when memory is given back; nil if nobody waits
}

// account is what one session takes. The quota's mutex guards used and closed.
type account struct {
	quota    *quota
	end      func(error)   // ends the session; it does not wait
	evicted  chan struct{} // closed when the session is ended for what it takes
	used     int64
	evicting bool // the session is being ended: it takes no more
	closed   bool // the session has ended: what it takes counts no more
}

const (
	// memoryShare is what a session may take whatever others take: enough for the ports and
	// rules of an ordinary switch, and for what is usually on its way to it.
	memoryShare = 256 << 10
	// memoryTimeout is how long a reply waits for memory of others before the session that
	// takes most is ended. Replies of switches that do no harm are over within that time.
	memoryTimeout = time.Second
)

func newQuota(limit int64) *quota { return &quota{limit: limit, accounts: map[*account]struct{}{}} }

// open makes the account of a new session.
func (q *quota) open(end func(error)) *account {
	a := &account{quota: q, end: end, evicted: make(chan struct{})}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.accounts[a] = struct{}{}
	return a
}

// close gives back all that a session takes.
func (a *account) close() {
	a.quota.mu.Lock()
	defer a.quota.mu.Unlock()
	a.quota.remove(a)
}

// remove takes an account out of the quota; the mutex is held.
func (q *quota) remove(a *account) {
	if a.closed {
		return
	}
	if a.evicting {
		q.evicting -= beyondShare(a.used)
	}
	a.closed = true
	delete(q.accounts, a)
	q.shared -= beyondShare(a.used)
	q.signalFreed()
}

// signalFreed wakes those who wait for memory; the mutex is held.
func (q *quota) signalFreed() {
	if q.freed != nil {
		close(q.freed)
		q.freed = nil
	}
}

func beyondShare(used int64) int64 { return max(0, used-memoryShare) }

// tryTakeLocked takes memory if there is enough, and reports whether there was; the mutex is held. soon
// is how much of what others take will be there in a moment.
func (a *account) tryTakeLocked(bytes, released int64) bool {
	if a.closed || a.evicting {
		return false
	}
	beyond := beyondShare(a.used + bytes)
	common := a.quota.shared + beyond - beyondShare(a.used)
	if beyond > 0 && common-released > a.quota.limit {
		return false
	}
	a.used += bytes
	a.quota.shared = common
	return true
}

// tryTake takes memory if there is enough, and reports whether there was.
func (a *account) tryTake(bytes int64) bool {
	a.quota.mu.Lock()
	defer a.quota.mu.Unlock()
	return a.tryTakeLocked(bytes, 0)
}

// take takes memory. Where there is not enough, sessions are ended that take more than this
// one, and what these give back in a moment is taken at once. It fails if there is none.
func (a *account) take(bytes int64) error {
	for {
		a.quota.mu.Lock()
		fits, used := a.tryTakeLocked(bytes, a.quota.evicting), a.used
		a.quota.mu.Unlock()
		if fits {
			return nil
		}
		if !a.evictLarger(used + bytes) {
			return a.quota.errFull()
		}
	}
}

// evictLarger ends the session that takes most, if it takes more than bytes, and reports
// whether it did.
func (a *account) evictLarger(bytes int64) bool {
	q := a.quota
	q.mu.Lock()
	largest := q.largest(bytes)
	if largest == nil || a.closed || a.evicting {
		q.mu.Unlock()
		return false
	}
	largest.evicting = true
	q.evicting += beyondShare(largest.used)
	close(largest.evicted)
	q.mu.Unlock()
	largest.end(fmt.Errorf("it takes more memory than any other switch: %w", q.errFull()))
	return true
}

// largest returns the account that takes most, if it takes more than bytes; nil if none does. The mutex is held.
func (q *quota) largest(bytes int64) (largest *account) {
	for a := range q.accounts {
		if a.used > bytes && !a.evicting {
			largest, bytes = a, a.used
		}
	}
	return largest
}

func (q *quota) errFull() error {
	return fmt.Errorf("%w: all switches together take more memory than openflow.memory, %d bytes", ErrBusy, q.limit)
}

// wait is take for who may wait, as a reader: before sessions are ended it waits for others to
// give memory back, and after that until they have. Meanwhile nothing is read from the switch.
func (a *account) wait(bytes int64) error {
	timer := time.NewTimer(memoryTimeout)
	defer timer.Stop()
	for {
		a.quota.mu.Lock()
		if a.tryTakeLocked(bytes, 0) {
			a.quota.mu.Unlock()
			return nil
		}
		if a.quota.freed == nil {
			a.quota.freed = make(chan struct{})
		}
		freed, used := a.quota.freed, a.used
		a.quota.mu.Unlock()
		select {
		case <-freed:
		case <-a.evicted:
			return a.quota.errFull()
		case <-timer.C:
			if !a.evictLarger(used + bytes) {
				return a.quota.errFull()
			}
			timer.Reset(memoryTimeout)
		}
	}
}

// release gives memory back.
func (a *account) release(bytes int64) {
	if bytes == 0 {
		return
	}
	a.quota.mu.Lock()
	defer a.quota.mu.Unlock()
	if !a.closed {
		less := beyondShare(a.used) - beyondShare(a.used-bytes)
		a.quota.shared -= less
		if a.evicting {
			a.quota.evicting -= less
		}
		a.quota.signalFreed()
	}
	a.used -= bytes
}

// taken returns how much memory all sessions take, and how much of it is beyond their shares.
func (q *quota) taken() (all, beyond int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for a := range q.accounts {
		all += a.used
	}
	return all, q.shared
}

// partOverhead is what a part of a reply takes besides what it holds.
const partOverhead = 128

// footprint returns how many bytes lie behind the references of a value. Decoded messages may
// take many times what they are on the wire: this is what counts towards the quota.
func footprint(v reflect.Value) (bytes int64) {
	switch v.Kind() {
	case reflect.String:
		return int64(v.Len())
	case reflect.Pointer:
		if !v.IsNil() {
			return int64(v.Type().Elem().Size()) + footprint(v.Elem())
		}
	case reflect.Interface:
		return footprint(v.Elem())
	case reflect.Slice:
		bytes = int64(v.Cap()) * int64(v.Type().Elem().Size())
		if refers(v.Type().Elem()) {
			for i := range v.Len() {
				bytes += footprint(v.Index(i))
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			bytes += footprint(v.Field(i))
		}
	}
	return bytes
}

// refers reports whether something may lie behind values of a type.
func refers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Pointer, reflect.Interface, reflect.Slice:
		return true
	case reflect.Struct:
		for i := range t.NumField() {
			if refers(t.Field(i).Type) {
				return true
			}
		}
	}
	return false
}
