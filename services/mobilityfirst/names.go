package mobilityfirst

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

const (
	// maxNames is how many places of names are remembered, a quarter of them at one switch, maxNamesAt how
	// many at one port, maxPlaces how many of one name.
	maxNames, maxNamesAt, maxPlaces = 65536, 256, 64
	// quiet is when a place of a name makes room for another: it has left out a hello.
	quiet = 15 * time.Second
	// silent is when a name that has not said hello is not at a place any more: three times in a row.
	silent = 35 * time.Second
	// maxFollowers is how many are told where a name is that they have asked for in vain, maxFollowed
	// how many names there are for which somebody has, and followFor for how long.
	maxFollowers, maxFollowed, followFor = 64, 16384, 30 * time.Second
)

// place is where a name is: behind a port, at an Ethernet address.
type place struct {
	At  network.PortRef
	MAC openflow.MAC
}

// end is a name at a place.
type end struct {
	name frame.GUID
	place
}

// compare puts ends in an order.
func (e end) compare(other end) int {
	return cmp.Or(bytes.Compare(e.name[:], other.name[:]), e.At.Compare(other.At), bytes.Compare(e.MAC[:], other.MAC[:]))
}

// named is what is known of a name.
type named struct {
	number uint64 // the highest of its hellos
	at     map[place]heard
}

// heard is the last hello of a name at a place.
type heard struct {
	when   time.Time
	number uint64
}

// clocks is by how much the numbers of hellos of two hosts with the same name may differ: they are by their clocks, in
// nanoseconds.
const clocks = uint64(15 * time.Second)

// names says where names are.
type names struct {
	mu     sync.Mutex
	of     map[frame.GUID]*named
	behind map[network.PortRef]map[end]struct{}
	places kit.Shares // of all names
	// followers are those who have asked for a name that is nowhere.
	followers map[frame.GUID]map[end]time.Time
}

func newNames() *names {
	return &names{of: map[frame.GUID]*named{}, behind: map[network.PortRef]map[end]struct{}{}, places: kit.NewShares(), followers: map[frame.GUID]map[end]time.Time{}}
}

// find says where a name is.
func (n *names) find(name frame.GUID) []place {
	n.mu.Lock()
	defer n.mu.Unlock()
	if x := n.of[name]; x != nil {
		return slices.Collect(maps.Keys(x.at))
	}
	return nil
}

// interfaces are the places of a name at the same host as one of them: hellos have the same number there.
func (n *names) interfaces(e end) (all []end) {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.of[e.name]
	if x == nil {
		return nil
	}
	for at, heard := range x.at {
		if heard.number == x.at[e.place].number {
			all = append(all, end{e.name, at})
		}
	}
	return all
}

// known says whether a name is anywhere.
func (n *names) known(name frame.GUID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.of[name] != nil
}

// saysOld says whether a hello with a number has nothing new of a name at a place.
func (n *names) saysOld(e end, number uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.of[e.name]
	if x == nil {
		return false
	}
	before, is := x.at[e.place]
	return is && number <= before.number
}

// learned is what has become of a hello.
type learned int

const (
	known learned = iota // it says nothing new
	isNew
	isOld // another has said something newer
	full  // there is no room
)

// learn notes what a hello says that was verified.
func (n *names) learn(e end, number uint64, now time.Time) learned {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.of[e.name]
	if x == nil {
		x = &named{at: map[place]heard{}}
	}
	before, was := x.at[e.place]
	if was && number < before.number || !was && !x.believes(e.place, number) {
		return isOld
	}
	if !was {
		if here, _ := n.places.Has(e.At); here >= maxNamesAt {
			n.makeRoom(e.At)
		}
		if !n.places.Room(e.At, maxNames, maxNames/4, maxNamesAt) {
			return full
		}
		for at := range x.at { // it has moved there
			if at.MAC == e.MAC {
				n.remove(end{e.name, at})
			}
		}
		if len(x.at) >= maxPlaces {
			oldest := x.oldest()
			if now.Sub(x.at[oldest].when) < quiet {
				return full
			}
			n.remove(end{e.name, oldest})
		}
		if n.behind[e.At] == nil {
			n.behind[e.At] = map[end]struct{}{}
		}
		n.behind[e.At][e] = struct{}{}
		n.places.Add(e.At, 1)
	}
	x.number, x.at[e.place] = max(x.number, number), heard{now, number}
	n.of[e.name] = x
	if was {
		return known
	}
	return isNew
}

// believes says whether a hello with a number may be from a place where the name was not. A host says the same at each of its
// interfaces, so the same of an Ethernet address that has been seen elsewhere, or less, is somebody else's who has kept it. Of
// another address it is another host's, whose clock may be another.
func (x *named) believes(at place, number uint64) bool {
	for other, before := range x.at {
		if other.MAC == at.MAC && number <= before.number {
			return false
		}
	}
	return number >= x.number-min(x.number, clocks)
}

func (x *named) oldest() (oldest place) {
	var since time.Time
	for at, heard := range x.at {
		if since.IsZero() || heard.when.Before(since) {
			oldest, since = at, heard.when
		}
	}
	return oldest
}

// makeRoom forgets the name behind a port that was heard longest ago.
func (n *names) makeRoom(at network.PortRef) {
	var oldest end
	var since time.Time
	for e := range n.behind[at] {
		if heard := n.of[e.name].at[e.place].when; since.IsZero() || heard.Before(since) {
			oldest, since = e, heard
		}
	}
	n.remove(oldest)
}

// remove forgets that a name is at a place.
func (n *names) remove(e end) {
	x := n.of[e.name]
	delete(x.at, e.place)
	if len(x.at) == 0 {
		delete(n.of, e.name)
	}
	n.places.Add(e.At, -1)
	if delete(n.behind[e.At], e); len(n.behind[e.At]) == 0 {
		delete(n.behind, e.At)
	}
}

// leave forgets the names behind a port.
func (n *names) leave(at network.PortRef) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for e := range n.behind[at] {
		n.remove(e)
	}
}

// sweep forgets what is not so any more.
func (n *names) sweep(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, x := range n.of {
		for at, heard := range x.at {
			if now.Sub(heard.when) > silent {
				n.remove(end{name, at})
			}
		}
	}
	for name, all := range n.followers {
		maps.DeleteFunc(all, func(_ end, asked time.Time) bool { return now.Sub(asked) > followFor })
		if len(all) == 0 {
			delete(n.followers, name)
		}
	}
}

// follow has who has asked for a name told when it is somewhere.
func (n *names) follow(name frame.GUID, who end, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.followers[name]
	if _, is := all[who]; !is && (len(all) >= maxFollowers || all == nil && len(n.followers) >= maxFollowed) {
		return
	}
	if all == nil {
		all = map[end]time.Time{}
		n.followers[name] = all
	}
	all[who] = now
}

// followed takes those who are to be told of a name.
func (n *names) followed(name frame.GUID) []end {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := slices.Collect(maps.Keys(n.followers[name]))
	delete(n.followers, name)
	return all
}

// count is how many names there are.
func (n *names) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.of)
}
