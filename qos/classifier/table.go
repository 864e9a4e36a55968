package classifier

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/sluice-net/sluice/ovsdb"
)

// TagDSCP is the tag of a queue that says which DSCP its packets get back.
const TagDSCP = "sluice-dscp"

// Entry maps a mark to a class.
type Entry struct {
	// Mark is the DSCP by which Open vSwitch marks the queue's packets.
	Mark uint8
	// Own is the DSCP that they get back.
	Own uint8
	// Class is the minor number of the kernel's class.
	Class uint16
}

// Table is what the program at one port does, by marks.
type Table []Entry

// tableOf reads a port's queues. Open vSwitch gives queue n the class 1:(n+1).
func tableOf(q *ovsdb.QoS) (Table, error) {
	var t Table
	for _, queue := range q.Queues {
		text, tagged := queue.Tags[TagDSCP]
		if queue.Mark == nil || !tagged {
			continue
		}
		own, err := strconv.ParseUint(text, 10, 8)
		if err != nil || own > 63 || queue.ID >= 0xfffe {
			return nil, fmt.Errorf("queue %d: %s %q: want a DSCP, 0 to 63", queue.ID, TagDSCP, text)
		}
		t = append(t, Entry{Mark: *queue.Mark, Own: uint8(own), Class: uint16(queue.ID + 1)})
	}
	slices.SortFunc(t, func(a, b Entry) int { return cmp.Compare(a.Mark, b.Mark) })
	for i := 1; i < len(t); i++ {
		if t[i].Mark == t[i-1].Mark {
			return nil, fmt.Errorf("two queues mark their packets with DSCP %d", t[i].Mark)
		}
	}
	return t, nil
}

// name says what a filter does: filters of the same name need no change.
func (t Table) name() string {
	h := fnv.New64a()
	for _, e := range t {
		fmt.Fprintf(h, "%d>%d@%d ", e.Mark, e.Own, e.Class)
	}
	return fmt.Sprintf("%s%d-%016x", filterPrefix, version, h.Sum64())
}

// filterPrefix begins the names of our filters; version changes with the program.
const (
	filterPrefix = "sluice-"
	version      = 1
)
