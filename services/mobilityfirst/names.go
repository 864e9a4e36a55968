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
	// maxPlaces limits the places of all names together, of which a quarter may be at one switch.
	// maxPlacesPerPort and maxPlacesPerName limit those at one port and of one name.
	maxPlaces, maxPlacesPerPort, maxPlacesPerName = 65536, 256, 64
	// replaceableAfter is the time without a hello after which a place of a name may be replaced by
	// another: one hello is missing.
	replaceableAfter = 15 * time.Second
	// helloTimeout is the time without a hello after which a name has left a place: three hellos in
	// a row are missing.
	helloTimeout = 35 * time.Second
	// goneTimeout is how long a place is remembered whose port has gone down.
	goneTimeout = 5 * time.Minute
	// maxSubscribersPerName limits the hosts that are notified of a name that they have asked for
	// in vain, and maxSubscribersPerPort those of them behind one port.
	maxSubscribersPerName, maxSubscribersPerPort = 64, 8
	// maxSubscriptions limits the subscriptions to all names together, of which a quarter may be of
	// one switch, and maxSubscriptionsPerPort those of one port. A host stays subscribed for
	// subscriptionLifetime.
	maxSubscriptions, maxSubscriptionsPerPort, subscriptionLifetime = 65536, 4096, 30 * time.Second
)

// place is where a host is: behind a port, with an Ethernet address.
type place struct {
	At  network.PortRef
	MAC openflow.MAC
}

// endpoint is a name at a place.
type endpoint struct {
	name frame.GUID
	place
}

// compare orders endpoints.
func (e endpoint) compare(other endpoint) int {
	return cmp.Or(bytes.Compare(e.name[:], other.name[:]), e.At.Compare(other.At), bytes.Compare(e.MAC[:], other.MAC[:]))
}

// nameState holds the state of a name.
type nameState struct {
	number uint64 // the highest number of its hellos
	at     map[place]lastHello
}

// lastHello describes the last hello of a name at a place.
type lastHello struct {
	received time.Time
	number   uint64
	// gone is set when the place's port goes down. The place is then only remembered, so that the
	// host is recognised where it appears next.
	gone bool
}

// appendPlaces appends the places that are not gone.
func (x *nameState) appendPlaces(all []place) []place {
	for at, heard := range x.at {
		if !heard.gone {
			all = append(all, at)
		}
	}
	return all
}

// present reports whether the name has a place that is not gone.
func (x *nameState) present() bool {
	for _, heard := range x.at {
		if !heard.gone {
			return true
		}
	}
	return false
}

// maxClockSkew is how much the numbers of hellos of two hosts with the same name may differ. Hosts
// take the numbers from their clocks, in nanoseconds.
const maxClockSkew = uint64(15 * time.Second)

// names holds the places of names.
type names struct {
	mu     sync.Mutex
	byName map[frame.GUID]*nameState
	byPort map[network.PortRef]map[endpoint]struct{}
	shares kit.Shares // counts the places of all names
	// subscribers holds the places of the hosts that have asked for a name without a place, and when.
	subscribers   map[frame.GUID]map[place]time.Time
	subscriptions kit.Shares // counts the subscribers of all names
}

func newNames() *names {
	return &names{byName: map[frame.GUID]*nameState{}, byPort: map[network.PortRef]map[endpoint]struct{}{}, shares: kit.NewShares(), subscribers: map[frame.GUID]map[place]time.Time{}, subscriptions: kit.NewShares()}
}

// find returns the places of a name.
func (n *names) find(name frame.GUID) []place { return n.appendPlaces(nil, name) }

// appendPlaces appends the places of a name.
func (n *names) appendPlaces(all []place, name frame.GUID) []place {
	n.mu.Lock()
	defer n.mu.Unlock()
	if x := n.byName[name]; x != nil {
		all = x.appendPlaces(all)
	}
	return all
}

// wasAt reports whether a name is known at some place with this Ethernet address, or was until that
// place's port went down.
func (n *names) wasAt(name frame.GUID, mac openflow.MAC) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.byName[name]
	if x == nil {
		return false
	}
	for at := range x.at {
		if at.MAC == mac {
			return true
		}
	}
	return false
}

// interfaces returns the endpoints of a name that are interfaces of the same host as e: a host's
// hellos have the same number on all of them.
func (n *names) interfaces(e endpoint) (all []endpoint) {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.byName[e.name]
	if x == nil {
		return nil
	}
	for at, heard := range x.at {
		if heard.number == x.at[e.place].number && !heard.gone {
			all = append(all, endpoint{e.name, at})
		}
	}
	return all
}

// isRepeated reports whether the hello with this number, or a later one, has already been received
// from the endpoint.
func (n *names) isRepeated(e endpoint, number uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.byName[e.name]
	if x == nil {
		return false
	}
	before, ok := x.at[e.place]
	return ok && number <= before.number && !before.gone
}

// outcome is the result of learn.
type outcome int

const (
	helloKnown outcome = iota // the place was known
	helloNew
	helloStale   // a newer hello contradicts it
	helloRefused // the place was not learned: a limit has been reached
)

// learn records the place of a verified hello.
func (n *names) learn(e endpoint, number uint64, now time.Time) outcome {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.byName[e.name]
	if x == nil {
		x = &nameState{at: map[place]lastHello{}}
	}
	before, ok := x.at[e.place]
	if ok && number < before.number || !ok && !x.accepts(e.place, number) {
		return helloStale
	}
	if !ok {
		if here, _ := n.shares.Has(e.At); here >= maxPlacesPerPort {
			n.evictOldest(e.At)
		}
		if !n.shares.Room(e.At, maxPlaces, maxPlaces/4, maxPlacesPerPort) {
			return helloRefused
		}
		for at := range x.at { // the host has moved here from there
			if at.MAC == e.MAC {
				n.remove(endpoint{e.name, at})
			}
		}
		if len(x.at) >= maxPlacesPerName {
			oldest := x.oldest()
			if now.Sub(x.at[oldest].received) < replaceableAfter {
				return helloRefused
			}
			n.remove(endpoint{e.name, oldest})
		}
		if n.byPort[e.At] == nil {
			n.byPort[e.At] = map[endpoint]struct{}{}
		}
		n.byPort[e.At][e] = struct{}{}
		n.shares.Add(e.At, 1)
	}
	x.number, x.at[e.place] = max(x.number, number), lastHello{received: now, number: number}
	n.byName[e.name] = x
	if ok && !before.gone {
		return helloKnown
	}
	return helloNew
}

// accepts reports whether a hello with this number may come from a place at which the name was not
// known. A host sends the same hello on each of its interfaces. So a number that an Ethernet
// address has already used at another port, or a lower one, is a replay by another host. A hello
// with another address comes from another host of the name, whose clock may differ.
func (x *nameState) accepts(at place, number uint64) bool {
	for other, before := range x.at {
		if other.MAC == at.MAC && number <= before.number {
			return false
		}
	}
	return number >= x.number-min(x.number, maxClockSkew)
}

func (x *nameState) oldest() (oldest place) {
	var since time.Time
	for at, heard := range x.at {
		if since.IsZero() || heard.received.Before(since) {
			oldest, since = at, heard.received
		}
	}
	return oldest
}

// evictOldest removes the name behind a port whose last hello is the oldest.
func (n *names) evictOldest(at network.PortRef) {
	var oldest endpoint
	var since time.Time
	for e := range n.byPort[at] {
		if heard := n.byName[e.name].at[e.place].received; since.IsZero() || heard.Before(since) {
			oldest, since = e, heard
		}
	}
	n.remove(oldest)
}

// remove removes a place of a name.
func (n *names) remove(e endpoint) {
	x := n.byName[e.name]
	delete(x.at, e.place)
	if len(x.at) == 0 {
		delete(n.byName, e.name)
	}
	n.shares.Add(e.At, -1)
	if delete(n.byPort[e.At], e); len(n.byPort[e.At]) == 0 {
		delete(n.byPort, e.At)
	}
}

// portDown records that the places of all names behind a port are gone.
func (n *names) portDown(at network.PortRef) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for e := range n.byPort[at] {
		x := n.byName[e.name]
		heard := x.at[e.place]
		heard.gone = true
		x.at[e.place] = heard
	}
}

// expire removes the places and subscriptions that have timed out.
func (n *names) expire(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, x := range n.byName {
		for at, heard := range x.at {
			timeout := helloTimeout
			if heard.gone {
				timeout = goneTimeout
			}
			if now.Sub(heard.received) > timeout {
				n.remove(endpoint{name, at})
			}
		}
	}
	for name, all := range n.subscribers {
		for at, asked := range all {
			if now.Sub(asked) > subscriptionLifetime {
				delete(all, at)
				n.subscriptions.Add(at.At, -1)
			}
		}
		if len(all) == 0 {
			delete(n.subscribers, name)
		}
	}
}

// subscribe records that the host at a place is to be notified when the name has a place.
func (n *names) subscribe(name frame.GUID, at place, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.subscribers[name]
	if _, ok := all[at]; !ok {
		ofPort := 0
		for other := range all {
			if other.At == at.At {
				ofPort++
			}
		}
		if len(all) >= maxSubscribersPerName || ofPort >= maxSubscribersPerPort || !n.subscriptions.Room(at.At, maxSubscriptions, maxSubscriptions/4, maxSubscriptionsPerPort) {
			return
		}
		n.subscriptions.Add(at.At, 1)
	}
	if all == nil {
		all = map[place]time.Time{}
		n.subscribers[name] = all
	}
	all[at] = now
}

// takeSubscribers returns the places of the hosts to notify of a name and removes them.
func (n *names) takeSubscribers(name frame.GUID) []place {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := slices.Collect(maps.Keys(n.subscribers[name]))
	delete(n.subscribers, name)
	for _, at := range all {
		n.subscriptions.Add(at.At, -1)
	}
	return all
}

// count returns the number of names that have a place.
func (n *names) count() (present int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, x := range n.byName {
		if x.present() {
			present++
		}
	}
	return present
}

// PlaceInfo describes a place of a name: a switch port and the Ethernet address of a host behind
// it.
type PlaceInfo struct {
	Port string `json:"port" doc:"Port of the switch behind which its host is"`
	MAC  string `json:"mac"`
}

// String returns the place in one line.
func (p PlaceInfo) String() string { return p.Port + " " + p.MAC }

func placeInfo(p place) PlaceInfo { return PlaceInfo{p.At.String(), p.MAC.String()} }
