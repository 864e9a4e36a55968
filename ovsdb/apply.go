package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// applyTimeout bounds one change, until the switch's daemon has carried it out.
const applyTimeout = 10 * time.Second

// Change tells what Apply has sent.
type Change struct {
	// Operations is their number, zero if the switch was as wanted.
	Operations int
	// Took is the time until the daemon had carried them out.
	Took time.Duration
}

// Wanted is what an owner wants at one bridge. What it does not name, the owner does not
// have there.
type Wanted struct {
	// Queues are the disciplines of ports, by their OpenFlow numbers. If it is nil, also
	// ports whose numbers are not known now lose theirs.
	Queues map[uint32]Root
	// SFlow has the bridge report.
	SFlow *SFlow
}

// Apply gives a bridge what an owner wants there, and takes from it what the owner has
// there beside that. It returns when the switch's daemon has carried that out. What
// belongs to somebody else stays as it is: it is named in the error, as are ports that do
// not exist, among PortErrors if it is a port.
func (c *Client) Apply(ctx context.Context, owner string, dpid uint64, want Wanted) (Change, error) {
	return c.change(ctx, func(s *State) ([]ovsdb.Operation, error) {
		b, ok := s.Bridge(dpid)
		if !ok {
			return nil, fmt.Errorf("database %s has no bridge %016x", c.opts.Target, dpid)
		}
		return s.plan(b, owner, want)
	})
}

// SetTag writes an external id on the row of a port's QoS, whoever has made it; an empty
// value takes it away. If the row has gone meanwhile, nothing happens.
func (c *Client) SetTag(ctx context.Context, p Port, key, value string) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	s, _, _ := c.current()
	if s == nil {
		return c.Err()
	}
	op := ovsdb.Operation{Op: ovsdb.OperationMutate, Table: "QoS", Where: is(p.qos), Mutations: []ovsdb.Mutation{
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

// change computes operations from the present state and sends them, again if the
// database has changed in between, until none are left to do.
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
		if len(ops) == 0 { // but an earlier change may not have been carried out yet
			if err := c.carriedOut(ctx, s, state, changed, state.root.Next); err != nil {
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
		if err := c.carriedOut(ctx, s, state, changed, number); err != nil {
			return done, err
		}
	}
}

// commit sends operations, and asks the daemon to say when it has carried them out:
// it copies next_cfg to cur_cfg then.
func (s *session) commit(ctx context.Context, state *State, ops []ovsdb.Operation) (number int, err error) {
	root := is(state.root.UUID)
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

// carriedOut waits until the daemon has carried out a change.
func (c *Client) carriedOut(ctx context.Context, s *session, state *State, changed <-chan struct{}, number int) error {
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
