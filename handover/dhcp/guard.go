package dhcp

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// maxStamps is how many signatures of one device are remembered. When there are
// more within the window, those as old as the oldest no longer count.
const maxStamps = 256

// guard remembers which signatures came, so that none counts twice. What it keeps
// is bounded for each device, and kept for no longer than a signature counts.
type guard struct {
	mu      sync.Mutex
	devices map[string]*stamps
	swept   time.Time
}

// stamps are those of one device, oldest first, and all newer than floor.
type stamps struct {
	list  []Stamp
	floor time.Time
}

func newGuard() *guard { return &guard{devices: make(map[string]*stamps)} }

// use takes the stamp, unless it was used or is not newer than floor.
func (g *guard) use(device string, s Stamp, floor, now time.Time) error {
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

func (s Stamp) compare(o Stamp) int {
	return cmp.Or(s.Time.Compare(o.Time), slices.Compare(s.Nonce[:], o.Nonce[:]))
}

// sweep forgets, now and then, what is too old to count anyway.
func (g *guard) sweep(now time.Time) {
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
