package host

import (
	"encoding/binary"
	"hash/fnv"
	"iter"
	"slices"
	"time"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

const (
	// maxNeighbours limits the other hosts' names that a host remembers, maxPlaces the places of
	// each, and maxNamesPerPlace the names at one place.
	maxNeighbours, maxPlaces, maxNamesPerPlace = 4096, 16, maxApplications
	// forgetNeighbour is how long a silent neighbour is remembered.
	forgetNeighbour = time.Hour
)

// place is where frames come from and go to: a link and an Ethernet address on it.
type place struct {
	link *link
	mac  openflow.MAC
}

// source returns the place by which limits and memory are counted: for a far host, its address
// without the port.
func (p place) source() place {
	if p.link.isFar() {
		p.mac[0], p.mac[1] = 0, 0
	}
	return p
}

// id identifies the result of source to applications. Different addresses on one link have different
// ones, so nobody can choose an address that counts as another's.
func (p place) id() hostapi.Place {
	h := fnv.New32a()
	_, _ = h.Write([]byte(p.link.name)) // it never fails
	var b [8]byte
	binary.BigEndian.PutUint16(b[:], uint16(h.Sum32())|1) // so that it is not zero
	copy(b[2:], p.mac[:])
	return hostapi.Place(binary.BigEndian.Uint64(b[:]))
}

// neighbour is another host's name, whose owner has signed where it is.
type neighbour struct {
	name          frame.GUID
	places        []route // the newest first
	far           bool    // its first hello came from afar
	number        uint64  // the highest number of its hellos
	lastHello     time.Time
	sessions      []*session // the sessions of its chunks
	lastRequest   uint64     // the ID of its last path request
	repeats       int        // how often that was repeated, at times at least minRepeatInterval apart
	lastRepeat    time.Time  // when it was last repeated
	noLabelsUntil time.Time  // until then labels are not used: a device on the way does not forward tags
}

// distrustsLabels reports whether the labels of a request have to be ignored. That is so if the
// request is repeated again and again: answers that use the labels then do not arrive.
func (n *neighbour) distrustsLabels(q *frame.PathRequest, now time.Time) bool {
	switch {
	case q.ID != n.lastRequest:
		n.lastRequest, n.repeats, n.lastRepeat = q.ID, 0, now
	case now.Sub(n.lastRepeat) >= minRepeatInterval: // copies by several ways arrive together
		n.repeats++
		n.lastRepeat = now
	}
	if n.repeats >= maxSilences && q.Back != 0 {
		n.noLabelsUntil = now.Add(labelDistrust)
	}
	return now.Before(n.noLabelsUntil)
}

// minRepeatInterval is the time after which the same request counts as repeated.
const minRepeatInterval = 300 * time.Millisecond

// unlabel removes the label of a place.
func (n *neighbour) unlabel(at place) {
	for i := range n.places {
		if n.places[i].place == at {
			n.places[i].tag = 0
		}
	}
}

// route is a place with the label by which it is reached: the VLAN tag of a path that the network
// has set up, or zero. A label is used until the neighbour's next request or answer, also after its
// lease. It then still leads to the same host, or the switches drop the frames and the neighbour
// requests another path.
type route struct {
	place
	tag uint16
}

// neighbours indexes neighbours by name and by place.
type neighbours struct {
	byName  map[frame.GUID]*neighbour
	byPlace map[place][]*neighbour
	far     int // the number of neighbours whose first hello came from afar
}

func (t *neighbours) init() {
	t.byName, t.byPlace = map[frame.GUID]*neighbour{}, map[place][]*neighbour{}
}

// learn records a verified hello. It returns nil if there is no room, or if the hello is older than
// the last one; old reports the latter. Only an unsolicited hello can be too old.
func (t *neighbours) learn(name frame.GUID, hello *frame.Hello, at place, tag uint16, now time.Time) (n *neighbour, old bool) {
	n = t.byName[name]
	if n != nil && hello.Number < n.number && hello.Challenge == 0 {
		return nil, true
	}
	if n == nil {
		n = &neighbour{name: name, far: at.link.isFar()}
	}
	if known := slices.IndexFunc(n.places, func(r route) bool { return r.place == at }); known >= 0 {
		n.places = slices.Delete(n.places, known, known+1)
	} else {
		if len(t.byPlace[at]) >= maxNamesPerPlace && !t.evictOldest(slices.Values(t.byPlace[at])) || t.byName[name] == nil && !t.makeRoom(n.far) {
			return nil, false
		}
		t.byPlace[at] = append(t.byPlace[at], n)
	}
	n.places = slices.Insert(n.places, 0, route{at, tag})
	if len(n.places) > maxPlaces {
		t.forgetPlace(n, n.places[maxPlaces].place)
		n.places = n.places[:maxPlaces]
	}
	n.number, n.lastHello = hello.Number, now
	if t.byName[name] == nil {
		t.byName[name] = n
		t.count(n, 1)
	}
	return n, false
}

// makeRoom makes room for one more name if there is none, and reports whether there is room. Names
// that were first heard from afar may use half of the room, and replace only each other.
func (t *neighbours) makeRoom(far bool) bool {
	if far && (t.far >= maxNeighbours/2 || len(t.byName) >= maxNeighbours) {
		return t.evictOldest(t.some(true))
	}
	return len(t.byName) < maxNeighbours || t.evictOldest(t.some(false))
}

// count adds by to the number of neighbours that were first heard from afar, if n is one of them.
func (t *neighbours) count(n *neighbour, by int) {
	if n.far {
		t.far += by
	}
}

// knows reports whether a name is known at a place.
func (t *neighbours) knows(at place) bool { return len(t.byPlace[at]) > 0 }

// find returns the neighbour with a name if it is at a place, or nil.
func (t *neighbours) find(name frame.GUID, at place) *neighbour {
	for _, n := range t.byPlace[at] {
		if n.name == name {
			return n
		}
	}
	return nil
}

// tag returns the VLAN tag of frames to a place of the neighbour.
func (n *neighbour) tag(at place) uint16 {
	for _, r := range n.places {
		if r.place == at {
			return r.tag
		}
	}
	return 0
}

// isAt reports whether the neighbour is at a place.
func (n *neighbour) isAt(at place) bool {
	return slices.ContainsFunc(n.places, func(r route) bool { return r.place == at })
}

func (t *neighbours) forgetPlace(n *neighbour, at place) {
	rest := slices.DeleteFunc(t.byPlace[at], func(other *neighbour) bool { return other == n })
	if t.byPlace[at] = rest; len(rest) == 0 {
		delete(t.byPlace, at)
	}
}

func (t *neighbours) forget(n *neighbour) {
	for _, r := range n.places {
		t.forgetPlace(n, r.place)
	}
	if t.byName[n.name] == n {
		delete(t.byName, n.name)
		t.count(n, -1)
	}
}

// evictOldest removes the neighbour with the oldest hello of those that are not in use, and reports
// whether there was one.
func (t *neighbours) evictOldest(some iter.Seq[*neighbour]) bool {
	var oldest *neighbour
	for n := range some {
		if !n.inUse() && (oldest == nil || n.lastHello.Before(oldest.lastHello)) {
			oldest = n
		}
	}
	if oldest == nil {
		return false
	}
	t.forget(oldest)
	return true
}

// some returns a few arbitrary neighbours or, if far is set, a few of those whose first hello came
// from afar.
func (t *neighbours) some(far bool) iter.Seq[*neighbour] {
	return func(yield func(*neighbour) bool) {
		left := 16
		for _, n := range t.byName {
			if far && !n.far {
				continue
			}
			if left--; left < 0 || !yield(n) {
				return
			}
		}
	}
}

// sweep removes neighbours that have been silent for too long.
func (t *neighbours) sweep(now time.Time) {
	for _, n := range t.byName {
		if !n.inUse() && now.Sub(n.lastHello) > forgetNeighbour {
			t.forget(n)
		}
	}
}

// removeLink removes the places on a link.
func (t *neighbours) removeLink(l *link) {
	for _, n := range t.byName {
		n.places = slices.DeleteFunc(n.places, func(r route) bool {
			if r.link == l {
				t.forgetPlace(n, r.place)
			}
			return r.link == l
		})
	}
}

// tagTo returns the VLAN tag of frames to a place: that of the neighbour which was last heard there.
func (t *neighbours) tagTo(at place) uint16 {
	if len(t.byPlace[at]) == 0 {
		return 0
	}
	return slices.MaxFunc(t.byPlace[at], func(a, b *neighbour) int { return a.lastHello.Compare(b.lastHello) }).tag(at)
}
