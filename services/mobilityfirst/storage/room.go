package storage

import (
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

const (
	// minCharge is the least number of bytes of Options.Size that a chunk uses. It covers the cost,
	// in memory too, of a file that may be the only one in its folder.
	minCharge = 32 << 10
	// senderShare is the divisor that limits one sender: it may use an eighth of what others leave.
	senderShare = 8
	// placeShare is the divisor that limits all senders at one place together: they may use half of
	// what those at other places leave.
	placeShare = 2
	// knownShare is the divisor that limits all senders that are not known together, if the
	// operator has named known ones.
	knownShare = 2
)

var errNoRoom = errors.New("there is no room")

// room accounts for the bytes of Options.Size that chunks use. It limits each sender and each place
// that chunks come from. Names cost nothing to make, so without a limit for places one machine could
// use up the node by many names. Without a limit for senders, one sender could use up what all
// senders behind the same router may use. A sender may use a quarter of what a place may use.
type room struct {
	size      int64
	known     map[frame.GUID]struct{}
	used      int64
	perSender map[frame.GUID]int64
	// unknown is the part of used for senders that are not known, and perPlace that part by places.
	unknown  int64
	perPlace map[hostapi.Place]int64
}

func newRoom(size int64, known []frame.GUID) room {
	r := room{size: size, known: map[frame.GUID]struct{}{}, perSender: map[frame.GUID]int64{}, perPlace: map[hostapi.Place]int64{}}
	for _, name := range known {
		r.known[name] = struct{}{}
	}
	return r
}

// check returns an error if there is no room for a chunk.
func (r *room) check(k *Kept) error {
	bytes, sender := chargedBytes(k), r.perSender[k.Source]
	if _, ok := r.known[k.Source]; ok {
		if others := r.used - sender; bytes+sender > (r.size-others)/senderShare {
			return fmt.Errorf("%d bytes of its sender's are kept, %d of others', %d in all: %w", sender, others, r.size, errNoRoom)
		}
		return nil
	}
	size := r.size - (r.used - r.unknown)
	if len(r.known) > 0 {
		size = min(size, r.size/knownShare)
	}
	if others := r.unknown - sender; bytes+sender > (size-others)/senderShare {
		return fmt.Errorf("%d bytes of its sender's are kept, %d of others', %d for all whom the operator has not named: %w", sender, others, size, errNoRoom)
	}
	at := r.perPlace[k.Place]
	if others := r.unknown - at; bytes+at > (size-others)/placeShare {
		return fmt.Errorf("%d bytes are kept from the place where it comes from, %d from others, %d for all whom the operator has not named: %w", at, others, size, errNoRoom)
	}
	return nil
}

// charge counts a chunk.
func (r *room) charge(k *Kept) { r.use(k, chargedBytes(k)) }

// uncharge stops counting a chunk.
func (r *room) uncharge(k *Kept) { r.use(k, -chargedBytes(k)) }

// chargedBytes returns the number of bytes of Options.Size that a chunk uses.
func chargedBytes(k *Kept) int64 { return max(k.Size, minCharge) }

// use adds bytes, which may be negative, to all sums that a chunk belongs to.
func (r *room) use(k *Kept, bytes int64) {
	r.used += bytes
	add(r.perSender, k.Source, bytes)
	if _, ok := r.known[k.Source]; !ok {
		r.unknown += bytes
		add(r.perPlace, k.Place, bytes)
	}
}

// add adds bytes to a key's sum, and removes the key if its sum is zero.
func add[K comparable](sums map[K]int64, key K, bytes int64) {
	if sums[key] += bytes; sums[key] == 0 {
		delete(sums, key)
	}
}
