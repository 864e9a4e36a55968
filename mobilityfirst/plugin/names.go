package plugin

import (
	"bytes"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/mobilityfirst/frame"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// maxNames is how many places of names are remembered, a quarter of them at one switch, maxNamesAt how
	// many at one port, maxPlaces how many of one name.
	maxNames, maxNamesAt, maxPlaces = 65536, 256, 4
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
	return bytes.Compare(e.appendTo(nil), other.appendTo(nil))
}

func (e end) appendTo(b []byte) []byte {
	b = be.AppendUint64(append(b, e.name[:]...), uint64(e.At.Switch))
	return append(be.AppendUint32(b, e.At.Port), e.MAC[:]...)
}

// named is what is known of a name.
type named struct {
	number uint64 // the highest of its hellos
	at     map[place]time.Time
}

// names says where names are.
type names struct {
	mu     sync.Mutex
	of     map[frame.GUID]*named
	behind map[network.PortRef]map[end]struct{}
	places shares // of all names
	// followers are those who have asked for a name that is nowhere.
	followers map[frame.GUID]map[end]time.Time
}

func newNames() *names {
	return &names{of: map[frame.GUID]*named{}, behind: map[network.PortRef]map[end]struct{}{}, places: newShares(), followers: map[frame.GUID]map[end]time.Time{}}
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
	return x != nil && number <= x.number && !x.at[e.place].IsZero()
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
		x = &named{at: map[place]time.Time{}}
	}
	was := !x.at[e.place].IsZero()
	// A host says the same at each of its interfaces: one that has been seen elsewhere is somebody
	// else's, who has kept it.
	if number < x.number || number == x.number && !was && x.elsewhere(e.place) {
		return isOld
	}
	if !was {
		if n.places.byPort[e.At] >= maxNamesAt {
			n.makeRoom(e.At)
		}
		if !n.places.room(e.At, maxNames, maxNames/4, maxNamesAt) {
			return full
		}
		for at := range x.at { // it has moved there
			if at.MAC == e.MAC {
				n.remove(end{e.name, at})
			}
		}
		if len(x.at) >= maxPlaces {
			n.remove(end{e.name, x.oldest()})
		}
		if n.behind[e.At] == nil {
			n.behind[e.At] = map[end]struct{}{}
		}
		n.behind[e.At][e] = struct{}{}
		n.places.add(e.At, 1)
	}
	x.number, x.at[e.place] = number, now
	n.of[e.name] = x
	if was {
		return known
	}
	return isNew
}

// elsewhere says whether an Ethernet address has been seen behind another port.
func (x *named) elsewhere(at place) bool {
	for other := range x.at {
		if other.MAC == at.MAC {
			return true
		}
	}
	return false
}

func (x *named) oldest() (oldest place) {
	var since time.Time
	for at, heard := range x.at {
		if since.IsZero() || heard.Before(since) {
			oldest, since = at, heard
		}
	}
	return oldest
}

// makeRoom forgets the name behind a port that was heard longest ago.
func (n *names) makeRoom(at network.PortRef) {
	var oldest end
	var since time.Time
	for e := range n.behind[at] {
		if heard := n.of[e.name].at[e.place]; since.IsZero() || heard.Before(since) {
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
	n.places.add(e.At, -1)
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
			if now.Sub(heard) > silent {
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
