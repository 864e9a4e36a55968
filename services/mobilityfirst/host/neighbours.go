package host

import (
	"iter"
	"slices"
	"time"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

const (
	// maxNeighbours is how many names of others a host remembers, maxPlaces at how many places each,
	// and maxNamesAt how many at one place.
	maxNeighbours, maxPlaces, maxNamesAt = 4096, 16, maxApplications
	// forgetNeighbour is when nothing needs to be remembered of one that is not heard.
	forgetNeighbour = time.Hour
)

// place is where frames come from, and go to.
type place struct {
	link *link
	mac  openflow.MAC
}

// source is whose a place is, as it is counted: a far host has all ports of its address.
func (p place) source() place {
	if p.link.isFar() {
		p.mac[0], p.mac[1] = 0, 0
	}
	return p
}

// neighbour is somebody else's name, of which the owner has said where it is.
type neighbour struct {
	name     frame.GUID
	places   []reach // the newest first
	far      bool    // it was heard first from afar
	number   uint64  // the highest of its hellos
	heard    time.Time
	sessions []*session // what comes from it
	asked    uint64     // its last request
	again    int        // how often that was repeated, at times that are repeatEvery apart
	repeated time.Time  // when it was last
	plain    time.Time  // until when no label is believed in: something between does not pass tags
}

// distrusts says whether the labels of a request are left off: answers by them do not arrive, as it is asked again
// and again.
func (n *neighbour) distrusts(q *frame.PathRequest, now time.Time) bool {
	switch {
	case q.ID != n.asked:
		n.asked, n.again, n.repeated = q.ID, 0, now
	case now.Sub(n.repeated) >= repeatEvery: // copies by several ways come together
		n.again++
		n.repeated = now
	}
	if n.again >= silences && q.Back != 0 {
		n.plain = now.Add(distrust)
	}
	return now.Before(n.plain)
}

// repeatEvery is how far apart a request has to come to be counted as repeated.
const repeatEvery = 300 * time.Millisecond

// unlabel forgets the label to a place.
func (n *neighbour) unlabel(at place) {
	for i := range n.places {
		if n.places[i].place == at {
			n.places[i].label = label{}
		}
	}
}

// reach is how a place is reached.
type reach struct {
	place
	label
}

// label is a VLAN tag by which frames go a way that the network has made.
type label struct {
	tag   uint16    // zero for none
	until time.Time // when the way is not there any more
}

// at is the tag of frames that are sent now.
func (l label) at(now time.Time) uint16 {
	if now.After(l.until) {
		return 0
	}
	return l.tag
}

// neighbours are known by name and by place.
type neighbours struct {
	named map[frame.GUID]*neighbour
	at    map[place][]*neighbour
	far   int // how many of these were heard first from afar
}

func (t *neighbours) init() {
	t.named, t.at = map[frame.GUID]*neighbour{}, map[place][]*neighbour{}
}

// learn notes what a hello says that was verified; nil if there is no room, or if it is older than what is
// known. Whether it is old does not matter for a hello that answers to the host.
func (t *neighbours) learn(name frame.GUID, hello *frame.Hello, at place, way label, now time.Time) (n *neighbour, old bool) {
	n = t.named[name]
	if n != nil && hello.Number < n.number && hello.Challenge == 0 {
		return nil, true
	}
	if n == nil {
		n = &neighbour{name: name, far: at.link.isFar()}
	}
	if known := slices.IndexFunc(n.places, func(r reach) bool { return r.place == at }); known >= 0 {
		n.places = slices.Delete(n.places, known, known+1)
	} else {
		if len(t.at[at]) >= maxNamesAt && !t.makeRoom(slices.Values(t.at[at])) || t.named[name] == nil && !t.hasRoom(n.far) {
			return nil, false
		}
		t.at[at] = append(t.at[at], n)
	}
	n.places = slices.Insert(n.places, 0, reach{at, way})
	if len(n.places) > maxPlaces {
		t.forgetPlace(n, n.places[maxPlaces].place)
		n.places = n.places[:maxPlaces]
	}
	n.number, n.heard = hello.Number, now
	if t.named[name] == nil {
		t.named[name] = n
		t.count(n, 1)
	}
	return n, false
}

// hasRoom makes room for one more name, if there is none. Those that are heard from afar have half of it at most, and
// make room for each other.
func (t *neighbours) hasRoom(far bool) bool {
	if far && (t.far >= maxNeighbours/2 || len(t.named) >= maxNeighbours) {
		return t.makeRoom(t.some(true))
	}
	return len(t.named) < maxNeighbours || t.makeRoom(t.some(false))
}

// count counts a name, or counts it no more.
func (t *neighbours) count(n *neighbour, by int) {
	if n.far {
		t.far += by
	}
}

// knows says whether somebody is at a place.
func (t *neighbours) knows(at place) bool { return len(t.at[at]) > 0 }

// find is the neighbour of a name, if it is at a place.
func (t *neighbours) find(name frame.GUID, at place) *neighbour {
	for _, n := range t.at[at] {
		if n.name == name {
			return n
		}
	}
	return nil
}

// tag is the VLAN tag with which frames go to a place.
func (n *neighbour) tag(at place, now time.Time) uint16 {
	for _, r := range n.places {
		if r.place == at {
			return r.label.at(now)
		}
	}
	return 0
}

// is says whether a neighbour is at a place.
func (n *neighbour) is(at place) bool {
	return slices.ContainsFunc(n.places, func(r reach) bool { return r.place == at })
}

func (t *neighbours) forgetPlace(n *neighbour, at place) {
	rest := slices.DeleteFunc(t.at[at], func(other *neighbour) bool { return other == n })
	if t.at[at] = rest; len(rest) == 0 {
		delete(t.at, at)
	}
}

func (t *neighbours) forget(n *neighbour) {
	for _, r := range n.places {
		t.forgetPlace(n, r.place)
	}
	if t.named[n.name] == n {
		delete(t.named, n.name)
		t.count(n, -1)
	}
}

// makeRoom forgets the one of some that was heard longest ago, of those of which nothing is left.
func (t *neighbours) makeRoom(some iter.Seq[*neighbour]) bool {
	var oldest *neighbour
	for n := range some {
		if !n.needed() && (oldest == nil || n.heard.Before(oldest.heard)) {
			oldest = n
		}
	}
	if oldest == nil {
		return false
	}
	t.forget(oldest)
	return true
}

// some are a few neighbours, whichever; or a few of those that were heard first from afar.
func (t *neighbours) some(far bool) iter.Seq[*neighbour] {
	return func(yield func(*neighbour) bool) {
		left := 16
		for _, n := range t.named {
			if far && !n.far {
				continue
			}
			if left--; left < 0 || !yield(n) {
				return
			}
		}
	}
}

// sweep forgets those who have been silent for long.
func (t *neighbours) sweep(now time.Time) {
	for _, n := range t.named {
		if !n.needed() && now.Sub(n.heard) > forgetNeighbour {
			t.forget(n)
		}
	}
}

// leave forgets the places on a link.
func (t *neighbours) leave(l *link) {
	for _, n := range t.named {
		n.places = slices.DeleteFunc(n.places, func(r reach) bool {
			if r.link == l {
				t.forgetPlace(n, r.place)
			}
			return r.link == l
		})
	}
}

// tagTo is the VLAN tag with which frames go to a place, whoever is there.
func (t *neighbours) tagTo(at place, now time.Time) uint16 {
	for _, n := range t.at[at] {
		return n.tag(at, now)
	}
	return 0
}
