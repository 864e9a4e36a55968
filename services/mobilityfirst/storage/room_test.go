package storage

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/services/mobilityfirst/custody"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

// testChunk is the size of the chunks in these tests, and testSize that of the room.
const testChunk, testSize = 1 << 20, 256 << 20

// fill stores chunks of a sender at a place as long as there is room, and returns their bytes.
func (r *room) fill(sender frame.GUID, at hostapi.Place) (kept int64) {
	k := Kept{ID: custody.ID{Source: sender}, Place: at, Size: testChunk}
	for ; r.check(&k) == nil; kept += testChunk {
		r.charge(&k)
	}
	return kept
}

// invented returns one of many names that cost nothing.
func invented(n int) (name frame.GUID) {
	binary.BigEndian.PutUint32(name[:], uint32(n)+1)
	return name
}

// Any number of names at one place, also of those that send from other places as well, leaves half
// of the room to others; and any number of names at few places leaves the others their share.
func TestManyNamesAtOnePlace(t *testing.T) {
	for _, places := range []int{1, 2, 3} {
		r, left := newRoom(testSize, nil), int64(testSize)
		for at := range places {
			for n := range 1000 {
				r.fill(invented(1000*at+n), hostapi.Place(1+at))
			}
			if left -= r.perPlace[hostapi.Place(1+at)]; left < testSize>>(1+at) {
				t.Fatalf("1000 names at each of %d places leave %d of %d bytes", 1+at, left, testSize)
			}
		}
		if got, want := r.fill(frame.GUID{19: 1}, 99), left/senderShare-2*testChunk; got < want {
			t.Errorf("beside 1000 names at each of %d places, a sender at another place may use %d bytes, want at least %d", places, got, want)
		}
	}
}

// One sender, however much it sends, leaves three quarters of what its place may use to other
// senders at the same place, such as those behind the same router.
func TestOneSenderAtAPlace(t *testing.T) {
	known := frame.GUID{18: 1}
	for name, r := range map[string]room{"nobody is known": newRoom(testSize, nil), "somebody is known": newRoom(testSize, []frame.GUID{known})} {
		for _, at := range []hostapi.Place{2, 3} { // other places are in use
			for n := range 100 {
				r.fill(invented(1000*int(at)+n), at)
			}
		}
		greedy, others := r.fill(invented(1), 1), int64(0)
		for n := range 100 {
			others += r.fill(invented(2+n), 1)
		}
		if greedy < testChunk || others < 2*greedy {
			t.Errorf("%s: a greedy sender uses %d bytes, and leaves %d to others at its place", name, greedy, others)
		}
	}
}

// Any number of names, at any number of places, leaves half of the room to the senders that the
// operator has named. For these it does not matter who else is at their place.
func TestManyNamesLeaveRoom(t *testing.T) {
	known := frame.GUID{18: 1}
	for _, places := range []int{1, 200} {
		r := newRoom(testSize, []frame.GUID{known})
		for n := range 200 {
			r.fill(invented(n), hostapi.Place(n%places+1))
		}
		if r.unknown > testSize/knownShare {
			t.Errorf("200 names at %d places use %d bytes, want at most %d", places, r.unknown, testSize/knownShare)
		}
		if kept := r.fill(known, 1); kept < testSize/knownShare/senderShare {
			t.Errorf("a known sender may use %d bytes beside 200 others at %d places, want at least %d", kept, places, testSize/knownShare/senderShare)
		}
	}
}

// Whatever comes and goes, no limit is exceeded by a chunk that was let in, and all that was
// counted is uncounted.
func TestRoomIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var known []frame.GUID
		if rapid.Bool().Draw(t, "known") {
			known = []frame.GUID{invented(0), invented(1)}
		}
		r, all := newRoom(testSize, known), []*Kept{}
		t.Repeat(map[string]func(*rapid.T){
			"arrives": func(t *rapid.T) {
				k := &Kept{Place: hostapi.Place(rapid.IntRange(0, 1).Draw(t, "place")), Size: rapid.Int64Range(testSize/20, testSize/senderShare).Draw(t, "size")}
				k.Source = invented(rapid.IntRange(0, 30).Draw(t, "sender"))
				if r.check(k) != nil {
					return
				}
				_, isKnown := r.known[k.Source]
				size, elsewhere := r.size-r.used+r.unknown, r.unknown-r.perPlace[k.Place]
				if known != nil {
					size = min(size, r.size/knownShare)
				}
				r.charge(k)
				all = append(all, k)
				switch {
				case r.used > r.size:
					t.Fatalf("%d bytes are used of %d", r.used, r.size)
				case r.perSender[k.Source] > r.size/senderShare:
					t.Fatalf("one sender uses %d bytes of %d", r.perSender[k.Source], r.size)
				case !isKnown && r.perPlace[k.Place] > (size-elsewhere)/placeShare:
					t.Fatalf("one place uses %d bytes of %d, others %d", r.perPlace[k.Place], size, elsewhere)
				}
			},
			"ends": func(t *rapid.T) {
				if len(all) == 0 {
					t.Skip("there is none")
				}
				i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
				r.uncharge(all[i])
				all[i] = all[len(all)-1]
				all = all[:len(all)-1]
			},
		})
		for _, k := range all {
			r.uncharge(k)
		}
		if r.used != 0 || r.unknown != 0 || len(r.perSender) != 0 || len(r.perPlace) != 0 {
			t.Fatalf("%+v is counted of nothing", r)
		}
	})
}
