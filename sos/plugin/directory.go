package plugin

import "time"

const (
	// directFor is how long a connection that was let go directly stays so: as
	// long as its first packet may be sent again.
	directFor = 30 * time.Second
	// maxDirect bounds how many such connections are remembered.
	maxDirect = 65536
)

// directory remembers connections that go directly, so that a retransmitted
// first packet is not given to agents behind the back of a server that has
// already answered. It is bounded in number: the oldest is forgotten.
type directory struct {
	until map[flow]time.Time
	order []flow
	next  int
}

func newDirectory() *directory {
	return &directory{until: make(map[flow]time.Time)}
}

func (d *directory) add(f flow, now time.Time) {
	if _, known := d.until[f]; !known {
		if len(d.order) < maxDirect {
			d.order = append(d.order, f)
		} else {
			delete(d.until, d.order[d.next])
			d.order[d.next] = f
			d.next = (d.next + 1) % maxDirect
		}
	}
	d.until[f] = now.Add(directFor)
}

func (d *directory) has(f flow, now time.Time) bool { return now.Before(d.until[f]) }
