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

// ErrStored means that the value of a name in the cluster is not a record that the name's owner has
// signed; errors wrap it.
var ErrStored = errors.New("what Redis has of the name is not its owner's")

// stored parses the value of a name without verifying the signature.
func stored(name frame.GUID, value []byte) (*record.Record, error) {
	if len(value) < stampSize {
		return nil, fmt.Errorf("%v: %d bytes: %w", name, len(value), ErrStored)
	}
	r, err := record.Parse(value[stampSize:])
	if err != nil {
		return nil, fmt.Errorf("%v: %w: %w", name, err, ErrStored)
	}
	if r.GUID() != name {
		return nil, fmt.Errorf("%v: a record of %v: %w", name, r.GUID(), ErrStored)
	}
	return r, nil
}

// verify verifies the records' signatures, and returns an error or nil for each. It verifies an
// expired record as of the time when it was valid.
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

// maxKnown is the capacity of each of the two sets in verifiedSet.
const maxKnown = 1 << 17

// digest is the hash of a record.
type digest [sha256.Size]byte

// digestOf returns the digest of a stored record without its stamp. The name follows from the
// record.
func digestOf(bare []byte) digest { return sha256.Sum256(bare) }

// verifiedSet remembers verified records: at least the maxKnown records that were used last. Its
// methods may be called concurrently.
type verifiedSet struct {
	mu            sync.Mutex
	recent, older map[digest]struct{}
}

// contains reports whether a record has been verified.
func (k *verifiedSet) contains(d digest) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.recent[d]; ok {
		return true
	}
	_, ok := k.older[d]
	if ok {
		k.put(d)
	}
	return ok
}

// add records that a record has been verified.
func (k *verifiedSet) add(d digest) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.put(d)
}

// put adds a record to the verified ones. The mutex is held.
func (k *verifiedSet) put(d digest) {
	if len(k.recent) >= maxKnown {
		k.older, k.recent = k.recent, nil
	}
	if k.recent == nil {
		k.recent = map[digest]struct{}{}
	}
	k.recent[d] = struct{}{}
}
