package namestore

import (
	"math"
	"time"

	"github.com/sluice-net/sluice/internal/units"
)

const (
	// minFree is the free space in bytes that a new name requires, and minMove the free space that
	// a new record of a stored name requires.
	minFree, minMove = 64 << 20, 16 << 20
	// freeInterval is the minimum time between two checks of the free space.
	freeInterval = 250 * time.Millisecond
	// logInterval is the minimum time between two lines of the log about the room.
	logInterval = time.Minute
)

// room is what a store has room for.
type room int

const (
	roomForAll   room = iota
	roomByLimit       // known names only: there are MaxNames
	roomForKnown      // known names only: the file system is nearly full
	noRoom            // nothing: the file system is full
)

// freeSpace returns the free space of the file system, which it reads at most once per
// freeInterval. If it cannot be read, freeSpace returns the maximum.
func (s *Store) freeSpace(now time.Time) uint64 {
	if now.Sub(s.freeAt) < freeInterval {
		return s.free
	}
	s.freeAt, s.free = now, math.MaxUint64
	if usage, err := s.fs.GetDiskUsage(s.Dir); err == nil {
		s.free = usage.AvailBytes
	}
	return s.free
}

// room returns what the store has room for.
func (s *Store) room(free uint64) room {
	switch {
	case free < minMove:
		return noRoom
	case free < minFree:
		return roomForKnown
	case s.Names() >= s.MaxNames:
		return roomByLimit
	}
	return roomForAll
}

// logRoom logs what the store has room for if that differs from what was logged before, at most once
// per logInterval.
func (s *Store) logRoom() {
	now := s.Now()
	free := s.freeSpace(now)
	is := s.room(free)
	if is == s.logged || now.Sub(s.loggedAt) < logInterval {
		return
	}
	s.logged, s.loggedAt = is, now
	switch is {
	case noRoom:
		s.Log.Error("the disk of the names is full: names are found, and nothing is written; make room", "folder", s.Dir, "free", units.FormatAmount(free), "needed", units.FormatSize(minMove))
	case roomForKnown:
		s.Log.Error("the disk of the names is nearly full: new names are refused; make room", "folder", s.Dir, "free", units.FormatAmount(free), "needed", units.FormatSize(minFree))
	case roomByLimit:
		s.Log.Warn("there are as many names as may be: new names are refused", "folder", s.Dir, "names", s.Names())
	default:
		s.Log.Info("there is room for names again", "folder", s.Dir)
	}
}
