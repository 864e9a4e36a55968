package network

import (
	"fmt"
	"reflect"
	"sync"
	"time"
)

// quota bounds the memory that all sessions together take for data that switches send and are
// sent: replies until their caller has used them, output queues, and held packets. Each session
// has a share of its own. The memory that it takes beyond its share counts towards a common limit.
// When the limit is reached, the session that takes most memory is ended.
type quota struct {
	limit int64

	mu       sync.Mutex
	shared   int64 // memory that sessions take beyond their shares
	evicting int64 // the part of shared that belongs to sessions being ended
	accounts map[*account]struct{}
	freed    chan struct{} // closed when memory is released; nil if nobody waits
}

// account is the memory of one session. The quota's mutex guards used, evicting and closed.
type account struct {
	quota    *quota
	end      func(error)   // ends the session without waiting
	evicted  chan struct{} // closed when the session is ended because of its memory
	used     int64
	evicting bool // the session is being ended and gets no more memory
	closed   bool // the session has ended and no longer counts
}

const (
	// memoryShare is the memory that each session may take regardless of all others, in bytes:
	// enough for the ports and rules of an ordinary switch and for its usual output.
	memoryShare = 256 << 10
	// memoryTimeout is how long a reply waits for memory before the session that takes most is
	// ended. Replies of well-behaved switches are used within that time.
	memoryTimeout = time.Second
)

func newQuota(limit int64) *quota { return &quota{limit: limit, accounts: map[*account]struct{}{}} }

// open returns the account of a new session.
func (q *quota) open(end func(error)) *account {
	a := &account{quota: q, end: end, evicted: make(chan struct{})}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.accounts[a] = struct{}{}
	return a
}

// close releases all memory of the session.
func (a *account) close() {
	a.quota.mu.Lock()
	defer a.quota.mu.Unlock()
	a.quota.remove(a)
}

// remove removes an account. The mutex is held.
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

// signalFreed wakes those that wait for memory. The mutex is held.
func (q *quota) signalFreed() {
	if q.freed != nil {
		close(q.freed)
		q.freed = nil
	}
}

// beyondShare returns the part of used that is beyond a session's own share.
func beyondShare(used int64) int64 { return max(0, used-memoryShare) }

// tryTakeLocked takes memory if there is enough, and reports whether there was; released is the
// part of others' memory that counts as free already. The mutex is held.
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

// take takes memory. If there is not enough, it ends sessions that take more than this one and
// counts their memory as free at once. It returns an error if that does not suffice.
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

// evictLarger ends the session that takes most memory, if that is more than bytes, and reports
// whether it has ended a session.
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

// largest returns the account with most memory, if that is more than bytes; otherwise nil. The
// mutex is held.
func (q *quota) largest(bytes int64) (largest *account) {
	for a := range q.accounts {
		if a.used > bytes && !a.evicting {
			largest, bytes = a, a.used
		}
	}
	return largest
}

func (q *quota) errFull() error {
	return fmt.Errorf("%w: all switches together need more memory than openflow.memory allows, %d bytes", ErrBusy, q.limit)
}

// wait takes memory like take, for a caller that may wait, such as a reader, which meanwhile reads
// no more from its switch. It first waits for other sessions to release memory. After memoryTimeout
// it ends a session that takes more than this one, and waits until that session has released its
// memory.
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

// release returns memory to the quota.
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

// taken returns the memory that all sessions take, and the part beyond their shares, in bytes.
func (q *quota) taken() (all, beyond int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for a := range q.accounts {
		all += a.used
	}
	return all, q.shared
}

// partOverhead is the memory that a part of a reply takes besides its content, in bytes.
const partOverhead = 128

// footprint returns the size of everything that a value refers to, in bytes. Decoded messages may
// take many times their size on the wire, so this is what the quota counts.
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

// refers reports whether values of a type may refer to other memory.
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
