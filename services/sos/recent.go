package sos

import "time"

const (
	// recentFor is how long a connection that went directly, or that has ended, is
	// remembered: as long as its first packet may be repeated or arrive late.
	recentFor = 30 * time.Second
	// maxRecent bounds how many such connections are remembered.
	maxRecent = 65536
)

// recent is a set whose elements expire after recentFor. It is bounded: a new element
// replaces the oldest.
type recent[K comparable] struct {
	until map[K]time.Time
	order []K
	next  int
}

func newRecent[K comparable]() *recent[K] { return &recent[K]{until: make(map[K]time.Time)} }

func (r *recent[K]) add(k K, now time.Time) {
	if _, ok := r.until[k]; !ok {
		if len(r.order) < maxRecent {
			r.order = append(r.order, k)
		} else {
			delete(r.until, r.order[r.next])
			r.order[r.next] = k
			r.next = (r.next + 1) % maxRecent
		}
	}
	r.until[k] = now.Add(recentFor)
}

func (r *recent[K]) has(k K, now time.Time) bool { return now.Before(r.until[k]) }

// synID identifies the first packet of a connection. Another connection between the same
// ports has another initial sequence number (RFC 6528).
type synID struct {
	flow flow
	isn  uint32
}
