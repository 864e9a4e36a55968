package classifier

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/sluice-net/sluice/ovsdb"
	"github.com/sluice-net/sluice/services/qos/mark"
)

// Table determines what the program at one port does.
type Table struct {
	// Marks lists the queues of marked packets, sorted by their marks.
	Marks []mark.Entry
	// Probes is the queue of the controller's probes of links; 0 if probes have no queue of their
	// own.
	Probes uint32
}

// isEmpty reports whether the port needs no filter.
func (t Table) isEmpty() bool { return len(t.Marks) == 0 && t.Probes == 0 }

// tableOf returns the table for a port's queues.
func tableOf(q *ovsdb.QoS) (Table, error) {
	var t Table
	for _, queue := range q.Queues {
		e, marked, err := mark.Read(queue.ID, queue.Tags)
		kept, keeps, keptErr := mark.ReadKept(queue.ID, queue.Tags)
		probes := queue.Tags[mark.TagProbes] != ""
		switch err := cmp.Or(err, keptErr); {
		case err != nil:
			return Table{}, err
		case (marked || keeps || probes) && queue.ID >= 0xfffe:
			return Table{}, fmt.Errorf("queue %d: the kernel has no class for it", queue.ID)
		case probes && t.Probes != 0:
			return Table{}, fmt.Errorf("queues %d and %d are both for probes of links", t.Probes, queue.ID)
		case probes:
			t.Probes = queue.ID
		}
		if marked {
			t.Marks = append(t.Marks, e)
		}
		if keeps {
			t.Marks = append(t.Marks, kept)
		}
	}
	slices.SortFunc(t.Marks, func(a, b mark.Entry) int { return cmp.Compare(a.Mark, b.Mark) })
	for i := 1; i < len(t.Marks); i++ {
		if t.Marks[i].Mark == t.Marks[i-1].Mark {
			return Table{}, fmt.Errorf("two queues mark their packets with DSCP %d", t.Marks[i].Mark)
		}
	}
	return t, nil
}

// classOf returns the minor number of the class that Open vSwitch gives a queue.
func classOf(queue uint32) uint16 { return uint16(queue + 1) }

// filterName returns the name of the table's filter. The name encodes what the filter does, so a
// filter that has it already need not be replaced.
func (t Table) filterName() string {
	h := fnv.New64a()
	fmt.Fprintf(h, "probes@%d ", t.Probes)
	for _, e := range t.Marks {
		fmt.Fprintf(h, "%d>%d@%d ", e.Mark, e.Own, classOf(e.Queue))
	}
	return fmt.Sprintf("%s%d-%016x", filterPrefix, version, h.Sum64())
}

// filterPrefix is the prefix of the names of this package's filters. version is a part of
// these names, and is changed whenever the generated program changes.
const (
	filterPrefix = "sluice-"
	version      = 2
)
