package pebblestore

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/sluice-net/sluice/store"
)

// Keys of the database: an entry's key follows entryPrefix.
const (
	entryPrefix = 'e'
	summaryKey  = "summary"
)

var be = binary.BigEndian

// entryHead is the size of the header before a value: a checksum and the revision.
const entryHead = 16

// sum returns the checksum of an entry: xxhash of revision, key and value.
func sum(e store.Entry) uint64 {
	var h xxhash.Digest
	h.Reset()
	var rev [8]byte
	be.PutUint64(rev[:], uint64(e.Revision))
	_, _ = h.Write(rev[:]) // a Digest never fails
	_, _ = h.WriteString(e.Key)
	_, _ = h.Write([]byte{0}) // no key contains it
	_, _ = h.Write(e.Value)
	return h.Sum64()
}

// encodeEntry returns an entry's key and value in the database.
func encodeEntry(e store.Entry) (key, value []byte) {
	value = make([]byte, entryHead, entryHead+len(e.Value))
	be.PutUint64(value, sum(e))
	be.PutUint64(value[8:], uint64(e.Revision))
	return databaseKey(e.Key), append(value, e.Value...)
}

func databaseKey(key string) []byte { return append([]byte{entryPrefix}, key...) }

// decodeEntry is the inverse of encodeEntry. The entry does not share memory with its arguments.
func decodeEntry(key, value []byte) (store.Entry, error) {
	if len(key) == 0 || key[0] != entryPrefix {
		return store.Entry{}, fmt.Errorf("the key %q is not one of a store", key)
	}
	e := store.Entry{Key: string(key[1:])}
	if len(value) < entryHead {
		return e, fmt.Errorf("the entry %q is cut off", e.Key)
	}
	e.Revision = int64(be.Uint64(value[8:]))
	e.Value = append([]byte{}, value[entryHead:]...)
	if be.Uint64(value) != sum(e) {
		return e, fmt.Errorf("the entry %q does not match its checksum", e.Key)
	}
	return e, nil
}

// summary describes all entries of a database together.
type summary struct {
	id       [16]byte // of the store: a restored store has another
	revision uint64
	count    uint64
	digest   uint64 // the sum of the entries' checksums
}

const summaryBytes = 48

// encode returns the summary with its own checksum.
func (s summary) encode() []byte {
	b := append(make([]byte, 0, summaryBytes), s.id[:]...)
	b = be.AppendUint64(b, s.revision)
	b = be.AppendUint64(b, s.count)
	b = be.AppendUint64(b, s.digest)
	return be.AppendUint64(b, xxhash.Sum64(b))
}

var errSummary = errors.New("its summary is damaged")

func decodeSummary(b []byte) (s summary, err error) {
	if len(b) != summaryBytes || be.Uint64(b[summaryBytes-8:]) != xxhash.Sum64(b[:summaryBytes-8]) {
		return s, errSummary
	}
	copy(s.id[:], b)
	s.revision, s.count, s.digest = be.Uint64(b[16:]), be.Uint64(b[24:]), be.Uint64(b[32:])
	return s, nil
}

// replace updates the summary for an entry that replaces another; either may be missing.
func (s *summary) replace(old store.Entry, had bool, e store.Entry, has bool) {
	if had {
		s.count--
		s.digest -= sum(old)
	}
	if has {
		s.count++
		s.digest += sum(e)
	}
}
