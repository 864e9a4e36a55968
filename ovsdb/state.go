package ovsdb

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// OwnerTag is the key in external_ids for the name of a row's owner.
const OwnerTag = "sluice-owner"

// TypeHTB is the type of QoS rows that are hierarchical token buckets.
const TypeHTB = "linux-htb"

// Userspace is the datapath type of bridges that forward in user space.
const Userspace = "netdev"

// State is the content of a database at one time. It is immutable.
type State struct {
	Bridges []Bridge

	root rootRow
	// orphans holds rows with an owner to which no other row refers.
	orphans []orphanRow
}

// Bridge is a bridge with its ports.
type Bridge struct {
	Name string
	// DPID is the datapath identifier; zero until the daemon has created the bridge.
	DPID uint64
	// Datapath is the datapath type: system, or netdev for one in user space.
	Datapath string
	Ports    []Port
	SFlow    *SFlow

	uuid, sflow string
}

// Port is a port of a bridge.
type Port struct {
	Name string
	// Number is the OpenFlow port number; zero for a port without one, such as a bond or an
	// interface that could not be opened.
	Number uint32
	// Speed is the interface's speed in bit/s, zero while unknown.
	Speed uint64
	// QoS is nil if the port has none, or if it is unknown yet.
	QoS *QoS

	uuid string
	// qos is the row to which the port refers, even if the row itself is unknown yet.
	qos string
}

// QoS is the queueing configuration of a port.
type QoS struct {
	Type string
	Root
	// Tags holds its external_ids.
	Tags map[string]string

	queues map[uint32]string
}

// Owner returns the name of the owner of the QoS, or "" if no Owner of this package has made it.
func (q *QoS) Owner() string { return q.Tags[OwnerTag] }

// Root is a token bucket for all packets of a port, with its leaves.
type Root struct {
	// Rate is the guaranteed and the maximum rate, in bit/s: the link's rate.
	Rate uint64
	// Queues are the leaves by number, ascending. Packets that choose no queue use queue 0;
	// without a queue 0 they are not shaped.
	Queues []Queue
}

// Queue is one leaf.
type Queue struct {
	ID               uint32
	MinRate, MaxRate uint64
	// Priority is the priority for the rate beyond the minimum rates; 0 is the highest.
	Priority uint8
	// Mark is the DSCP that packets of the queue get; nil leaves the DSCP unchanged.
	Mark *uint8
	// Tags holds the external_ids except the owner's.
	Tags map[string]string

	owner string
}

func (q Queue) equal(o Queue) bool {
	same := q.Mark == nil && o.Mark == nil || q.Mark != nil && o.Mark != nil && *q.Mark == *o.Mark
	return same && q.ID == o.ID && q.MinRate == o.MinRate && q.MaxRate == o.MaxRate && q.Priority == o.Priority && maps.Equal(q.Tags, o.Tags)
}

// Bridge returns a bridge by its datapath identifier.
func (s *State) Bridge(dpid uint64) (Bridge, bool) {
	i := slices.IndexFunc(s.Bridges, func(b Bridge) bool { return b.DPID == dpid && dpid != 0 })
	if i < 0 {
		return Bridge{}, false
	}
	return s.Bridges[i], true
}

// Port returns a port by its OpenFlow number.
func (b *Bridge) Port(number uint32) (Port, bool) {
	i := slices.IndexFunc(b.Ports, func(p Port) bool { return p.Number == number && number != 0 })
	if i < 0 {
		return Port{}, false
	}
	return b.Ports[i], true
}

// rows holds the tables' contents.
type rows struct {
	roots      []rootRow
	bridges    []bridgeRow
	ports      []portRow
	interfaces []interfaceRow
	qos        []qosRow
	queues     []queueRow
	sflow      []sflowRow
}

// state joins the rows.
func (r *rows) state() *State {
	s := &State{}
	if len(r.roots) > 0 {
		s.root = r.roots[0]
	}
	j := newRowIndex(r)
	for _, b := range r.bridges {
		s.Bridges = append(s.Bridges, j.bridge(b))
	}
	slices.SortFunc(s.Bridges, func(a, b Bridge) int { return strings.Compare(a.Name, b.Name) })
	s.orphans = j.orphans()
	return s
}

// rowIndex finds rows by their identifiers, and records which rows were referenced.
type rowIndex struct {
	ports      map[string]portRow
	interfaces map[string]interfaceRow
	qos        map[string]qosRow
	queues     map[string]queueRow
	sflow      map[string]sflowRow
	referenced map[string]bool
}

func newRowIndex(r *rows) *rowIndex {
	j := &rowIndex{referenced: map[string]bool{}}
	j.ports = byID(r.ports, func(x portRow) string { return x.UUID })
	j.interfaces = byID(r.interfaces, func(x interfaceRow) string { return x.UUID })
	j.qos = byID(r.qos, func(x qosRow) string { return x.UUID })
	j.queues = byID(r.queues, func(x queueRow) string { return x.UUID })
	j.sflow = byID(r.sflow, func(x sflowRow) string { return x.UUID })
	return j
}

func byID[T any](list []T, id func(T) string) map[string]T {
	m := make(map[string]T, len(list))
	for _, x := range list {
		m[id(x)] = x
	}
	return m
}

func (j *rowIndex) bridge(row bridgeRow) Bridge {
	b := Bridge{Name: row.Name, Datapath: row.DatapathType, uuid: row.UUID}
	if b.Datapath == "" {
		b.Datapath = "system"
	}
	if row.DatapathID != nil {
		b.DPID, _ = strconv.ParseUint(*row.DatapathID, 16, 64) // the daemon always writes hexadecimal digits
	}
	if row.SFlow != nil {
		b.sflow = *row.SFlow
		j.referenced[b.sflow] = true
		if f, ok := j.sflow[b.sflow]; ok {
			b.SFlow = readSFlow(f)
		}
	}
	for _, id := range row.Ports {
		if p, ok := j.ports[id]; ok {
			b.Ports = append(b.Ports, j.port(p))
		}
	}
	slices.SortFunc(b.Ports, func(x, y Port) int { return strings.Compare(x.Name, y.Name) })
	return b
}

func (j *rowIndex) port(row portRow) Port {
	p := Port{Name: row.Name, uuid: row.UUID}
	if len(row.Interfaces) == 1 { // a bond has no number of its own
		f := j.interfaces[row.Interfaces[0]]
		if f.Number != nil && *f.Number > 0 {
			p.Number = uint32(*f.Number)
		}
		if f.Speed != nil {
			p.Speed = uint64(*f.Speed)
		}
	}
	if row.QoS != nil {
		p.qos = *row.QoS
		j.referenced[p.qos] = true
		if q, ok := j.qos[p.qos]; ok {
			p.QoS = j.readQoS(q)
		}
	}
	return p
}

// readQoS returns the QoS of a row. It returns nil if the row of one of its queues has not arrived
// yet, because the owner of that queue is then unknown.
func (j *rowIndex) readQoS(row qosRow) *QoS {
	q := &QoS{Type: row.Type, Tags: row.IDs, queues: map[uint32]string{}}
	q.Rate, _ = strconv.ParseUint(row.Config["max-rate"], 10, 64)
	whole := true
	for _, n := range slices.Sorted(maps.Keys(row.Queues)) {
		id := row.Queues[n]
		j.referenced[id] = true
		q.queues[uint32(n)] = id
		queue, ok := j.queues[id]
		whole = whole && ok
		q.Queues = append(q.Queues, readQueue(uint32(n), queue))
	}
	if !whole {
		return nil
	}
	return q
}

func readQueue(n uint32, row queueRow) Queue {
	q := Queue{ID: n, Tags: map[string]string{}, owner: row.IDs[OwnerTag]}
	q.MinRate, _ = strconv.ParseUint(row.Config["min-rate"], 10, 64)
	q.MaxRate, _ = strconv.ParseUint(row.Config["max-rate"], 10, 64)
	priority, _ := strconv.ParseUint(row.Config["priority"], 10, 8)
	q.Priority = uint8(priority)
	if row.DSCP != nil {
		mark := uint8(*row.DSCP)
		q.Mark = &mark
	}
	for k, v := range row.IDs {
		if k != OwnerTag {
			q.Tags[k] = v
		}
	}
	return q
}

// orphanRow is a row to which no other row refers. It remains when a port is removed while its
// queues are configured.
type orphanRow struct{ table, id, owner string }

func (j *rowIndex) orphans() []orphanRow {
	var out []orphanRow
	note := func(table, id string, ids map[string]string) {
		if owner := ids[OwnerTag]; owner != "" && !j.referenced[id] {
			out = append(out, orphanRow{table, id, owner})
		}
	}
	for id, row := range j.qos {
		note("QoS", id, row.IDs)
	}
	for id, row := range j.queues {
		note("Queue", id, row.IDs)
	}
	for id, row := range j.sflow {
		note("sFlow", id, row.IDs)
	}
	return out
}
