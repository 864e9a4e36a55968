package mobilityfirst

import (
	"sync"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

const (
	// maxEarly is how much is kept of what was said too early, a quarter of it from one switch, maxEarlyAt from one
	// port, and earlyFor how long: longer than the network takes at most to find out that a host has moved.
	maxEarly, maxEarlyAt = 8192, maxNamesAt
	earlyFor             = 15 * time.Second
)

// early keeps what hosts have said where the network does not believe yet that they are, the last of each name, of
// itself and of each other: a host that has moved says hello at once, and then less and less often.
type early struct {
	mu     sync.Mutex
	of     map[place]map[about]said
	shares kit.Shares
}

// about is who has said something, and for which name he asks, if he does.
type about struct {
	key [32]byte
	to  frame.GUID
}

func newEarly() *early { return &early{of: map[place]map[about]said{}, shares: kit.NewShares()} }

// keep keeps what was said, if there is room.
func (y *early) keep(x said) {
	y.mu.Lock()
	defer y.mu.Unlock()
	all, what := y.of[x.place], about{key: x.hello.Key}
	if x.request != nil {
		what.to = x.request.Destination
	}
	if before, is := all[what]; is && x.hello.Number < before.hello.Number {
		return
	} else if !is {
		if !y.shares.Room(x.At, maxEarly, maxEarly/4, maxEarlyAt) {
			return
		}
		y.shares.Add(x.At, 1)
	}
	if all == nil {
		all = map[about]said{}
		y.of[x.place] = all
	}
	all[what] = x
}

// take gives what was said at a place, and forgets it.
func (y *early) take(at place) map[about]said {
	y.mu.Lock()
	defer y.mu.Unlock()
	all := y.of[at]
	y.shares.Add(at.At, -len(all))
	delete(y.of, at)
	return all
}

// sweep forgets what was said long ago.
func (y *early) sweep(now time.Time) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for at, all := range y.of {
		for what, x := range all {
			if now.Sub(x.at) > earlyFor {
				delete(all, what)
				y.shares.Add(at.At, -1)
			}
		}
		if len(all) == 0 {
			delete(y.of, at)
		}
	}
}

// believed takes what was said at a place, if the network believes now that the host is there.
func (s *Service) believed(at place) {
	if !s.isAt(at) {
		return // it is there in a VLAN
	}
	for _, x := range s.early.take(at) {
		if time.Since(x.at) <= earlyFor {
			s.take(x)
		}
	}
}
