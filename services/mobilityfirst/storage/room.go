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

// room accounts for the bytes of Options.Size that chunks use. Creating names costs nothing, so a
// limit for each sender alone leaves no room beside a machine with many names. A limit for each
// place alone lets one sender take the room of all others behind the same router. So there are
// both. A sender may use less than its place: at most a quarter of that.
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
	bytes, sender := charge(k), r.perSender[k.Source]
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
func (r *room) charge(k *Kept) { r.use(k, charge(k)) }

// uncharge stops counting a chunk.
func (r *room) uncharge(k *Kept) { r.use(k, -charge(k)) }

// charge returns the bytes that a chunk uses.
func charge(k *Kept) int64 { return max(k.Size, minCharge) }

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
