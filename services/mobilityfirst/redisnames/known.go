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
var ErrStored = errors.New("the value in Redis is not a record signed by the owner of the name")

// parseStored parses the value of a name without verifying the signature.
func parseStored(name frame.GUID, value []byte) (*record.Record, error) {
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
	var valid []*record.Record
	var indices []int // of the valid records in all
	for i, r := range all {
		if r.Expired(now) {
			errs[i] = r.Verify(time.Unix(r.Until, 0))
			continue
		}
		valid, indices = append(valid, r), append(indices, i)
	}
	if len(valid) == 0 {
		return errs
	}
	for i, err := range record.VerifyBatch(valid, now) {
		errs[indices[i]] = err
	}
	return errs
}

// maxKnown is the capacity of each of the two sets in verifiedSet.
const maxKnown = 1 << 17

// digest is the hash of a record.
type digest [sha256.Size]byte

// digestOf returns the digest of an encoded record, which does not include the stamp that precedes
// the record in Redis. The digest covers the name as well, because the record contains its owner's
// key.
func digestOf(encoded []byte) digest { return sha256.Sum256(encoded) }

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
