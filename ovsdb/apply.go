package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// applyTimeout bounds one change, until the switch's daemon has applied it.
const applyTimeout = 10 * time.Second

// Change describes what Apply has sent.
type Change struct {
	// Operations is the number of operations, zero if nothing had to be changed.
	Operations int
	// Took is the time until the daemon had applied them.
	Took time.Duration
}

// Wanted is the desired state of an owner at one bridge. Everything else of the owner is
// removed.
type Wanted struct {
	// Queues holds the QoS of ports by their OpenFlow numbers. If it is nil, ports whose numbers
	// are unknown now lose theirs, too.
	Queues map[uint32]Root
	// SFlow makes the bridge send reports, if it is not nil.
	SFlow *SFlow
}

// Apply gives a bridge the desired state of an owner, and removes everything else that the owner
// has there. It returns when the switch's daemon has applied the change. It leaves rows of
// others alone and names them in the error, as well as ports that do not exist. Errors about
// ports are PortErrors.
func (c *Client) Apply(ctx context.Context, owner string, dpid uint64, want Wanted) (Change, error) {
	return c.change(ctx, func(s *State) ([]ovsdb.Operation, error) {
		b, ok := s.Bridge(dpid)
		if !ok {
			return nil, fmt.Errorf("database %s has no bridge %016x", c.opts.Target, dpid)
		}
		return s.plan(b, owner, want)
	})
}

// SetTag writes an external id to the row of a port's QoS, whoever owns it; an empty value
// removes the id. If the row no longer exists, SetTag does nothing.
func (c *Client) SetTag(ctx context.Context, p Port, key, value string) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	s, _, _ := c.current()
	if s == nil {
		return c.Err()
	}
	op := ovsdb.Operation{Op: ovsdb.OperationMutate, Table: "QoS", Where: byUUID(p.qos), Mutations: []ovsdb.Mutation{
		*ovsdb.NewMutation("external_ids", ovsdb.MutateOperationDelete, set(key)),
	}}
	if value != "" {
		op.Mutations = append(op.Mutations, *ovsdb.NewMutation("external_ids", ovsdb.MutateOperationInsert, textMap(map[string]string{key: value})))
	}
	if _, err := s.transact(ctx, []ovsdb.Operation{op}); err != nil {
		return fmt.Errorf("database %s: %w", c.opts.Target, err)
	}
	return nil
}

// change computes operations from the present state and sends them. It repeats that until no
// operations are left, because the database may have changed in between.
func (c *Client) change(ctx context.Context, plan func(*State) ([]ovsdb.Operation, error)) (Change, error) {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	c.applying.Lock()
	defer c.applying.Unlock()
	var done Change
	began := time.Now()
	for {
		s, state, changed := c.current()
		if s == nil {
			return done, c.Err()
		}
		ops, planErr := plan(state)
		if len(ops) == 0 { // an earlier change may not be applied yet
			if err := c.awaitApplied(ctx, s, state, changed, state.root.Next); err != nil {
				return done, err
			}
			done.Took = time.Since(began)
			return done, planErr
		}
		number, err := s.commit(ctx, state, ops)
		if err != nil {
			return done, fmt.Errorf("database %s: %w", c.opts.Target, err)
		}
		done.Operations += len(ops)
		if err := c.awaitApplied(ctx, s, state, changed, number); err != nil {
			return done, err
		}
	}
}

// commit sends operations, and asks the daemon to report when it has applied them: the daemon
// then copies next_cfg to cur_cfg.
func (s *session) commit(ctx context.Context, state *State, ops []ovsdb.Operation) (number int, err error) {
	root := byUUID(state.root.UUID)
	ops = append(ops,
		ovsdb.Operation{Op: ovsdb.OperationMutate, Table: "Open_vSwitch", Where: root, Mutations: []ovsdb.Mutation{*ovsdb.NewMutation("next_cfg", ovsdb.MutateOperationAdd, 1)}},
		ovsdb.Operation{Op: ovsdb.OperationSelect, Table: "Open_vSwitch", Where: root, Columns: []string{"next_cfg"}})
	results, err := s.transact(ctx, ops)
	if err != nil {
		return 0, err
	}
	rows := results[len(ops)-1].Rows
	if len(rows) == 1 {
		if n, ok := rows[0]["next_cfg"].(float64); ok {
			return int(n), nil
		}
	}
	return 0, errors.New("no answer to which number the change has")
}

// awaitApplied waits until the daemon has applied a change.
func (c *Client) awaitApplied(ctx context.Context, s *session, state *State, changed <-chan struct{}, number int) error {
	for state.root.Done < number {
		select {
		case <-ctx.Done():
			return fmt.Errorf("database %s: written, but ovs-vswitchd has not carried it out: %w", c.opts.Target, context.Cause(ctx))
		case <-changed:
		}
		var now *session
		now, state, changed = c.current()
		if now != s {
			return fmt.Errorf("database %s: %w", c.opts.Target, ErrDown)
		}
	}
	return nil
}
