package mobilityfirst

import (
	"sync"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

const (
	// maxEarly limits the early messages: those of hosts that the network does not know yet. A
	// quarter of them may be from one switch. maxEarlyPerPort limits those from one port.
	// earlyLifetime is how long an early message is kept, which is longer than the network needs to
	// detect that a host has moved.
	maxEarly, maxEarlyPerPort = 8192, maxPlacesPerPort
	earlyLifetime             = 15 * time.Second
)

// earlyMessages keeps messages of hosts that the network does not know yet at the place where they
// were received. It keeps the last hello of each key and its last request for each name. A host
// that has moved says hello at once, and then less and less often.
type earlyMessages struct {
	mu      sync.Mutex
	byPlace map[place]map[messageKey]message
	shares  kit.Shares
}

// messageKey identifies a message by the key of its sender and the name that it asks for; the name
// is zero for a hello.
type messageKey struct {
	key         [32]byte
	destination frame.GUID
}

func newEarly() *earlyMessages {
	return &earlyMessages{byPlace: map[place]map[messageKey]message{}, shares: kit.NewShares()}
}

// add keeps a message, unless a newer one is kept or there is no room.
func (y *earlyMessages) add(x message) {
	y.mu.Lock()
	defer y.mu.Unlock()
	all, key := y.byPlace[x.place], messageKey{key: x.hello.Key}
	if x.request != nil {
		key.destination = x.request.Destination
	}
	if before, ok := all[key]; ok && x.hello.Number < before.hello.Number {
		return
	} else if !ok {
		if !y.shares.Room(x.At, maxEarly, maxEarly/4, maxEarlyPerPort) {
			return
		}
		y.shares.Add(x.At, 1)
	}
	if all == nil {
		all = map[messageKey]message{}
		y.byPlace[x.place] = all
	}
	all[key] = x
}

// take returns the messages from a place and removes them.
func (y *earlyMessages) take(at place) map[messageKey]message {
	y.mu.Lock()
	defer y.mu.Unlock()
	all := y.byPlace[at]
	y.shares.Add(at.At, -len(all))
	delete(y.byPlace, at)
	return all
}

// expire removes messages that are too old.
func (y *earlyMessages) expire(now time.Time) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for at, all := range y.byPlace {
		for key, x := range all {
			if now.Sub(x.received) > earlyLifetime {
				delete(all, key)
				y.shares.Add(at.At, -1)
			}
		}
		if len(all) == 0 {
			delete(y.byPlace, at)
		}
	}
}

// message is a hello, or a path request with the hello that it contains, as received from a host.
type message struct {
	place
	hello    frame.Hello
	request  *frame.PathRequest // nil for a hello alone
	flooded  bool               // the request is broadcast to all hosts
	repeated bool               // its hello has been received before, so the host is not looking for another path
	send     sender             // sends the frames that follow from this message at once
	received time.Time
}

// unverified is a message whose signature a worker has to verify.
type unverified struct {
	src endpoint
	message
}

// hasOwnAddress reports whether the hello names the Ethernet address that it was sent from, and
// does not answer a challenge.
func (x *message) hasOwnAddress() bool {
	return openflow.MAC(x.hello.MAC) == x.MAC && !x.MAC.IsMulticast() && !x.MAC.IsZero() && x.hello.Challenge == 0
}
