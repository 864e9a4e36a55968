package redisnames

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// ErrStored is for what the cluster has under a name and is no record of it that its owner has signed; errors wrap it.
var ErrStored = errors.New("what Redis has of the name is not its owner's")

// stored reads what the cluster has under a name, but for the signature.
func stored(name frame.GUID, value []byte) (*record.Record, error) {
	if len(value) < stamp {
		return nil, fmt.Errorf("%v: %d bytes: %w", name, len(value), ErrStored)
	}
	r, err := record.Parse(value[stamp:])
	if err != nil {
		return nil, fmt.Errorf("%v: %w: %w", name, err, ErrStored)
	}
	if r.GUID() != name {
		return nil, fmt.Errorf("%v: a record of %v: %w", name, r.GUID(), ErrStored)
	}
	return r, nil
}

// verify says of each record whether its owner has signed it. One that is over is verified as it was when it held.
func verify(all []*record.Record, now time.Time) []error {
	errs := make([]error, len(all))
	var hold []*record.Record
	var at []int
	for i, r := range all {
		if r.Expired(now) {
			errs[i] = r.Verify(time.Unix(r.Until, 0))
			continue
		}
		hold, at = append(hold, r), append(at, i)
	}
	if len(hold) == 0 {
		return errs
	}
	for i, err := range record.VerifyBatch(hold, now) {
		errs[at[i]] = err
	}
	return errs
}

// maxKnown is how many records are remembered once or twice.
const maxKnown = 1 << 17

// digest stands for a record.
type digest [sha256.Size]byte

// digestOf is that of a record as it is stored, without the stamp. The name follows from it.
func digestOf(bare []byte) digest { return sha256.Sum256(bare) }

// known are records that have been verified: the last maxKnown that were asked for at least. Its methods may be called
// concurrently.
type known struct {
	mu          sync.Mutex
	now, before map[digest]struct{}
}

// has says whether a record is known.
func (k *known) has(d digest) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, is := k.now[d]; is {
		return true
	}
	_, is := k.before[d]
	if is {
		k.put(d)
	}
	return is
}

// add notes that a record has been verified.
func (k *known) add(d digest) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.put(d)
}

// put is add for who has the lock.
func (k *known) put(d digest) {
	if len(k.now) >= maxKnown {
		k.before, k.now = k.now, nil
	}
	if k.now == nil {
		k.now = map[digest]struct{}{}
	}
	k.now[d] = struct{}{}
}
