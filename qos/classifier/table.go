package classifier

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/sluice-net/sluice/ovsdb"
	"github.com/sluice-net/sluice/qos/mark"
)

// Table is what the program at one port does, by marks.
type Table []mark.Entry

// tableOf reads a port's queues.
func tableOf(q *ovsdb.QoS) (Table, error) {
	var t Table
	for _, queue := range q.Queues {
		e, is, err := mark.Read(queue.ID, queue.Tags)
		switch {
		case err != nil:
			return nil, err
		case is && queue.ID >= 0xfffe:
			return nil, fmt.Errorf("queue %d: the kernel has no class for it", queue.ID)
		case is:
			t = append(t, e)
		}
	}
	slices.SortFunc(t, func(a, b mark.Entry) int { return cmp.Compare(a.Mark, b.Mark) })
	for i := 1; i < len(t); i++ {
		if t[i].Mark == t[i-1].Mark {
			return nil, fmt.Errorf("two queues mark their packets with DSCP %d", t[i].Mark)
		}
	}
	return t, nil
}

// classOf is the minor number of the class that Open vSwitch gives a queue.
func classOf(queue uint32) uint16 { return uint16(queue + 1) }

// name says what a filter does: filters of the same name need no change.
func (t Table) name() string {
	h := fnv.New64a()
	for _, e := range t {
		fmt.Fprintf(h, "%d>%d@%d ", e.Mark, e.Own, classOf(e.Queue))
	}
	return fmt.Sprintf("%s%d-%016x", filterPrefix, version, h.Sum64())
}

// filterPrefix begins the names of our filters; version changes with the program.
const (
	filterPrefix = "sluice-"
	version      = 1
)
