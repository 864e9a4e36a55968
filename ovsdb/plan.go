package ovsdb

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// ErrForeign means that somebody else has configured what an owner wants to configure. The foreign
// configuration stays unchanged.
var ErrForeign = errors.New("somebody else has configured it")

// ErrNoPort means that the bridge has no such port, or that the port cannot have queues.
var ErrNoPort = errors.New("no such port")

// PortErrors holds errors by the OpenFlow numbers of their ports. Changes at other ports were
// made.
type PortErrors map[uint32]error

// Error returns the errors, joined.
func (e PortErrors) Error() string { return errors.Join(e.Unwrap()...).Error() }

// Unwrap returns the errors, by port number.
func (e PortErrors) Unwrap() []error {
	out := make([]error, 0, len(e))
	for _, port := range slices.Sorted(maps.Keys(e)) {
		out = append(out, e[port])
	}
	return out
}

// plan returns the operations that turn the present state of a bridge into an owner's desired
// state. An error in one place does not prevent changes in others.
//
// The database may have changed since the state was read. Therefore every operation on a row of
// the owner has the condition that the row is still the owner's, and a port loses its QoS only
// if it still is the one that was read.
func (s *State) plan(b Bridge, owner string, want Wanted) ([]ovsdb.Operation, error) {
	p := &planner{owner: owner}
	err := errors.Join(p.queues(b, want.Queues), p.sflow(b, want.SFlow))
	for _, o := range s.orphans {
		if o.owner == owner {
			p.delete(o.table, o.id)
		}
	}
	return p.ops, err
}

// queues plans the QoS of ports. Ports that are not in want lose the owner's QoS. A port whose
// number is unknown now loses it only if want is nil.
func (p *planner) queues(b Bridge, want map[uint32]Root) error {
	errs := PortErrors{}
	for _, port := range b.Ports {
		root, wanted := want[port.Number]
		wanted = wanted && port.Number != 0
		mine := port.QoS != nil && port.QoS.Owner() == p.owner
		switch {
		case port.qos != "" && port.QoS == nil:
			// The row has not arrived yet; the next state has it.
		case wanted && port.QoS == nil:
			p.create(port, root)
		case wanted && mine:
			if err := p.change(port, root); err != nil {
				errs[port.Number] = fmt.Errorf("bridge %s, port %s: %w", b.Name, port.Name, err)
			}
		case wanted:
			errs[port.Number] = fmt.Errorf("bridge %s, port %s: QoS of type %s: %w: clear the port's qos to have queues there", b.Name, port.Name, port.QoS.Type, ErrForeign)
		case port.Number == 0 && want != nil:
			// Its interface cannot be opened at the moment.
		case mine:
			p.remove(port)
		}
	}
	for number := range want {
		if _, ok := b.Port(number); !ok {
			errs[number] = fmt.Errorf("bridge %s, port %d: %w", b.Name, number, ErrNoPort)
		}
	}
	if len(errs) > 0 {
		return errs
	}
	return nil
}

// planner collects the operations of one transaction.
type planner struct {
	owner string
	ops   []ovsdb.Operation
	names int
}

// rowName returns a new name for a row of this transaction.
func (p *planner) rowName() string {
	p.names++
	return "row" + strconv.Itoa(p.names)
}

func (p *planner) create(port Port, root Root) {
	queues := map[any]any{}
	for _, q := range root.Queues {
		queues[int(q.ID)] = p.insertQueue(q)
	}
	name := p.rowName()
	p.ops = append(p.ops,
		expectEmpty("Port", "qos", port.uuid),
		ovsdb.Operation{Op: ovsdb.OperationInsert, Table: "QoS", UUIDName: name, Row: ovsdb.Row{
			"type": TypeHTB, "queues": ovsdb.OvsMap{GoMap: queues},
			"other_config": rootConfig(root), "external_ids": textMap(map[string]string{OwnerTag: p.owner}),
		}},
		ovsdb.Operation{Op: ovsdb.OperationUpdate, Table: "Port", Where: byUUID(port.uuid), Row: ovsdb.Row{"qos": set(ovsdb.UUID{GoUUID: name})}})
}

// expectEmpty returns an operation that makes the transaction fail if somebody else has set a
// row's column in the meantime.
func expectEmpty(table, column, id string) ovsdb.Operation {
	now := 0
	return ovsdb.Operation{
		Op: ovsdb.OperationWait, Table: table, Timeout: &now, Where: byUUID(id), Columns: []string{column},
		Until: string(ovsdb.WaitConditionEqual), Rows: []ovsdb.Row{{column: set()}},
	}
}

// change changes the owner's QoS of a port. Queues of others in that QoS stay. If a queue of others
// has a wanted number, change changes nothing and returns an error.
func (p *planner) change(port Port, root Root) error {
	now, wanted := port.QoS, map[uint32]bool{}
	for _, q := range root.Queues {
		wanted[q.ID] = true
	}
	for _, q := range now.Queues {
		if q.owner != p.owner && wanted[q.ID] {
			return fmt.Errorf("queue %d: %w: remove it from the port's QoS", q.ID, ErrForeign)
		}
	}
	if now.Rate != root.Rate || now.Type != TypeHTB {
		p.ops = append(p.ops, ovsdb.Operation{Op: ovsdb.OperationUpdate, Table: "QoS", Where: p.ifOwned(port.qos), Row: ovsdb.Row{"type": TypeHTB, "other_config": rootConfig(root)}})
	}
	added := map[any]any{}
	for _, q := range root.Queues {
		i := slices.IndexFunc(now.Queues, func(x Queue) bool { return x.ID == q.ID })
		switch {
		case i < 0:
			added[int(q.ID)] = p.insertQueue(q)
		case !now.Queues[i].equal(q):
			p.ops = append(p.ops, ovsdb.Operation{Op: ovsdb.OperationUpdate, Table: "Queue", Where: p.ifOwned(now.queues[q.ID]), Row: p.queueRow(q)})
		}
	}
	if len(added) > 0 {
		p.mutate(port.qos, ovsdb.MutateOperationInsert, ovsdb.OvsMap{GoMap: added})
	}
	var gone []any
	for _, q := range now.Queues {
		if q.owner == p.owner && !wanted[q.ID] {
			gone = append(gone, int(q.ID))
			p.delete("Queue", now.queues[q.ID])
		}
	}
	if len(gone) > 0 {
		p.mutate(port.qos, ovsdb.MutateOperationDelete, ovsdb.OvsSet{GoSet: gone})
	}
	return nil
}

func (p *planner) mutate(qos string, how ovsdb.Mutator, what any) {
	p.ops = append(p.ops, ovsdb.Operation{
		Op: ovsdb.OperationMutate, Table: "QoS", Where: p.ifOwned(qos), Mutations: []ovsdb.Mutation{*ovsdb.NewMutation("queues", how, what)},
	})
}

func (p *planner) remove(port Port) {
	p.ops = append(p.ops, ovsdb.Operation{Op: ovsdb.OperationUpdate, Table: "Port", Where: ifRefers(port.uuid, "qos", port.qos), Row: ovsdb.Row{"qos": set()}})
	p.delete("QoS", port.qos)
	for _, q := range port.QoS.Queues {
		if q.owner == p.owner {
			p.delete("Queue", port.QoS.queues[q.ID])
		}
	}
}

// delete deletes a row of the owner.
func (p *planner) delete(table, id string) {
	p.ops = append(p.ops, ovsdb.Operation{Op: ovsdb.OperationDelete, Table: table, Where: p.ifOwned(id)})
}

func (p *planner) insertQueue(q Queue) ovsdb.UUID {
	name := p.rowName()
	p.ops = append(p.ops, ovsdb.Operation{Op: ovsdb.OperationInsert, Table: "Queue", UUIDName: name, Row: p.queueRow(q)})
	return ovsdb.UUID{GoUUID: name}
}

func (p *planner) queueRow(q Queue) ovsdb.Row {
	tags := map[string]string{OwnerTag: p.owner}
	maps.Copy(tags, q.Tags)
	mark := set()
	if q.Mark != nil {
		mark = set(int(*q.Mark))
	}
	return ovsdb.Row{
		"dscp": mark, "external_ids": textMap(tags),
		"other_config": textMap(map[string]string{
			"min-rate": decimal(q.MinRate), "max-rate": decimal(q.MaxRate), "priority": decimal(uint64(q.Priority)),
		}),
	}
}

func rootConfig(r Root) ovsdb.OvsMap { return textMap(map[string]string{"max-rate": decimal(r.Rate)}) }

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

func byUUID(id string) []ovsdb.Condition {
	return []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: id})}
}

// ifOwned selects a row if it still has the owner's name.
func (p *planner) ifOwned(id string) []ovsdb.Condition {
	return append(byUUID(id), ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, textMap(map[string]string{OwnerTag: p.owner})))
}

// ifRefers selects a row if its column still refers to another row.
func ifRefers(id, column, to string) []ovsdb.Condition {
	return append(byUUID(id), ovsdb.NewCondition(column, ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: to}))
}

func set(values ...any) ovsdb.OvsSet {
	if values == nil {
		values = []any{}
	}
	return ovsdb.OvsSet{GoSet: values}
}

func textMap(m map[string]string) ovsdb.OvsMap {
	out := make(map[any]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return ovsdb.OvsMap{GoMap: out}
}
