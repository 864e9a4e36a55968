package dhcp

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// maxStamps bounds the signatures that are remembered of one device. If more arrive within the
// window, those as old as the oldest are no longer accepted.
const maxStamps = 256

// replayGuard remembers the signatures that were used, so that none is accepted twice. What it
// remembers is bounded for each device, and kept no longer than a signature is valid.
type replayGuard struct {
	mu      sync.Mutex
	devices map[string]*stamps
	swept   time.Time
}

// stamps holds the signatures of one device, oldest first, all newer than floor.
type stamps struct {
	list  []Stamp
	floor time.Time
}

// newReplayGuard returns an empty replayGuard.
func newReplayGuard() *replayGuard { return &replayGuard{devices: make(map[string]*stamps)} }

// use marks the stamp as used. It returns an error if the stamp was used before or is not newer
// than floor.
func (g *replayGuard) use(device string, s Stamp, floor, now time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sweep(now)
	d := g.devices[device]
	if d == nil {
		d = &stamps{}
		g.devices[device] = d
	}
	if d.floor.After(floor) {
		floor = d.floor
	}
	if !s.Time.After(floor) {
		return fmt.Errorf("%w: %v newer", ErrReplay, floor.Sub(s.Time))
	}
	at, found := slices.BinarySearchFunc(d.list, s, Stamp.compare)
	if found {
		return ErrReplay
	}
	d.list = slices.Insert(d.list, at, s)
	if len(d.list) > maxStamps {
		d.floor = d.list[0].Time
		d.list = slices.Delete(d.list, 0, 1)
	}
	return nil
}

// compare orders stamps by time, then by nonce.
func (s Stamp) compare(o Stamp) int {
	return cmp.Or(s.Time.Compare(o.Time), slices.Compare(s.Nonce[:], o.Nonce[:]))
}

// sweep removes stamps that have expired, at most once per window.
func (g *replayGuard) sweep(now time.Time) {
	if now.Sub(g.swept) < Window {
		return
	}
	g.swept = now
	for id, d := range g.devices {
		old, _ := slices.BinarySearchFunc(d.list, now.Add(-Window), func(s Stamp, t time.Time) int { return s.Time.Compare(t) })
		d.list = slices.Delete(d.list, 0, old)
		if len(d.list) == 0 && now.Sub(d.floor) > Window {
			delete(g.devices, id)
		}
	}
}
