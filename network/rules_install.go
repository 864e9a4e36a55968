package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/openflow"
)

// step is a group of operations for one switch that ends with a barrier.
type step struct {
	sw  openflow.DatapathID
	ops []ledger.Op
	// bundle, if set, has been sent with the operations and waits to be committed.
	bundle *bundle
	// commitAtOnce sends the bundle with its commit. It is set for the first wave of several,
	// which is undone anyway if a switch refuses a part.
	commitAtOnce bool
}

// installer sends the changes of the ledger, the record of all declared rules, to the switches.
type installer struct {
	ledger     *ledger.Ledger
	switches   *registry
	timeout    time.Duration // of one change
	log        *slog.Logger
	logLimiter lograte.Limit // for changes that failed in the background
}

// execute sends a change and waits for its barriers. It writes before it deletes, so that a packet
// always matches the old rule or the new one.
func (in *installer) execute(ctx context.Context, c *ledger.Change, opts ApplyOptions) error {
	m := newProgress(c, opts)
	defer m.fillReport()
	if c.Empty() {
		m.allWritten()
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, in.timeout)
	defer cancel()
	var err error
	switch {
	case opts.Waves != nil:
		err = in.executeWaves(ctx, c, opts, m)
	case opts.Atomic:
		if err = in.executeAtomic(ctx, c, opts); err == nil {
			m.waveDone()
			m.allWritten()
		}
		return err
	default:
		if err = in.runSteps(ctx, writeSteps(c.Writes, opts.Ordered), opts); err == nil {
			m.waveDone()
		}
	}
	if err != nil {
		return err
	}
	m.allWritten()
	if opts.Waves != nil {
		if opts.Linger > 0 && len(c.Deletes) > 0 {
			_ = tasks.Sleep(ctx, opts.Linger) // if ctx ends, delete at once
		}
		ctx, cancel = context.WithTimeout(ctx, deleteTimeout)
		defer cancel()
	}
	if err := in.runSteps(ctx, deleteSteps(c.Deletes), ApplyOptions{AllowDown: true, Atomic: opts.Atomic}); err != nil {
		in.logLimiter.Warn(in.log, "deleting rules", "error", err) // not an error for the caller: everything wanted is installed
		in.deleteLater(c.Deletes)
	}
	return nil
}

// deleteLater queues unconfirmed deletions at the switches, each by itself. A switch that is cut
// off but still connected executes them when it is reachable again. One that has disconnected is
// reconciled when it connects.
func (in *installer) deleteLater(ops []ledger.Op) {
	for _, st := range deleteSteps(ops) {
		if err := in.enqueue(st, true); err != nil {
			in.logLimiter.Warn(in.log, "deleting rules", "switch", st.sw, "error", err)
		}
	}
}

// enqueue queues a step at its switch and does not wait. It skips a switch that is not connected,
// or has connected since the step was planned, because reconciliation does the step's work.
func (in *installer) enqueue(st step, changes bool) error {
	s := in.switches.accepting(st.sw)
	if s == nil || !st.fits(s) {
		return nil
	}
	_, err := s.ch.queueBatch(st.messages(), changes)
	return err
}

// fits reports whether the step was planned for the switch's present tables.
func (st *step) fits(s *Switch) bool {
	return !slices.ContainsFunc(st.ops, func(op ledger.Op) bool { return !op.Fits(s.layout) })
}

// messages returns the messages of the step's operations.
func (st *step) messages() []openflow.Message {
	msgs := make([]openflow.Message, len(st.ops))
	for i, op := range st.ops {
		msgs[i] = op.Message
	}
	return msgs
}

// deleteTimeout bounds the wait for deletions after waves. A dead switch that no packet is sent to
// any more must not delay the next change.
const deleteTimeout = time.Second

// executeAtomic makes the change of each switch one bundle, deletions included.
func (in *installer) executeAtomic(ctx context.Context, c *ledger.Change, opts ApplyOptions) error {
	steps := writeSteps(c.Writes, opts.Ordered)
	for _, d := range deleteSteps(c.Deletes) {
		joined := false
		for i := range steps {
			if !joined && steps[i].sw == d.sw {
				steps[i].ops = append(steps[i].ops, d.ops...)
				joined = true
			}
		}
		if !joined {
			steps = append(steps, d)
		}
	}
	return in.runSteps(ctx, steps, opts)
}

// splitBySwitch groups operations by switch. If ordered, it keeps their order and begins a new
// step whenever the switch changes; otherwise it returns one step for each switch.
func splitBySwitch(ops []ledger.Op, ordered bool) []step {
	var out []step
	at := map[openflow.DatapathID]int{}
	for _, op := range ops {
		i, ok := at[op.Switch]
		if ordered {
			i = len(out) - 1
			ok = i >= 0 && out[i].sw == op.Switch
		}
		if !ok {
			i = len(out)
			at[op.Switch] = i
			out = append(out, step{sw: op.Switch})
		}
		out[i].ops = append(out[i].ops, op)
	}
	return out
}

// writeSteps returns the steps for operations that write. On each switch, tables that others lead
// to come first.
func writeSteps(ops []ledger.Op, ordered bool) []step {
	out := splitBySwitch(ops, ordered)
	for _, st := range out {
		slices.SortStableFunc(st.ops, func(a, b ledger.Op) int { return b.Depth() - a.Depth() })
	}
	return out
}

// deleteSteps returns the steps for operations that delete. On each switch, tables that lead to
// others come first.
func deleteSteps(ops []ledger.Op) []step {
	out := splitBySwitch(ops, false)
	for _, st := range out {
		slices.SortStableFunc(st.ops, func(a, b ledger.Op) int { return a.Depth() - b.Depth() })
	}
	return out
}

// runSteps executes steps one after the other if ordered, and otherwise all at once.
func (in *installer) runSteps(ctx context.Context, steps []step, opts ApplyOptions) error {
	var waits []func() error
	for _, st := range steps {
		wait := in.startStep(ctx, st, opts)
		if !opts.Ordered {
			waits = append(waits, wait)
			continue
		}
		if err := wait(); err != nil {
			return err
		}
	}
	var firstErr error
	for _, wait := range waits {
		if err := wait(); err != nil && firstErr == nil {
			firstErr = err
		}
	}
	return firstErr
}

// startStep sends one step and returns a function that waits for it.
func (in *installer) startStep(ctx context.Context, st step, opts ApplyOptions) (wait func() error) {
	s := in.switches.accepting(st.sw)
	if s == nil {
		return func() error { return switchLost(st.sw, opts) }
	}
	if !st.fits(s) {
		return func() error { return switchLost(st.sw, opts) } // the switch has reconnected with other tables since the step was planned
	}
	in.ledger.Sending(st.sw, st.ops)
	switch {
	case st.bundle != nil:
		commit := st.bundle.commit()
		return func() error {
			err := commit(ctx)
			if errors.Is(err, ErrSwitchDown) {
				return switchLost(st.sw, opts)
			}
			return err
		}
	case opts.Atomic && s.caps.Bundles && len(st.ops) > 1 && st.commitAtOnce && !slices.ContainsFunc(st.ops, isMeter):
		return sendWholeBundle(ctx, s.ch, st, opts)
	case opts.Atomic && s.caps.Bundles && len(st.ops) > 1:
		return func() error { return in.runBundleStep(ctx, s, st, opts) }
	}
	bt, err := s.ch.sendBatch(st.messages())
	if err != nil {
		return func() error { return st.encodeError(err) }
	}
	return func() error {
		errs, err := s.ch.wait(ctx, bt)
		if errors.Is(err, ErrSwitchDown) {
			return switchLost(st.sw, opts)
		}
		return st.result(errs, 0, err)
	}
}

// switchLost returns the result for a switch that is not connected: nil if the caller allows that,
// because the ledger writes what is missing when the switch connects.
func switchLost(sw openflow.DatapathID, opts ApplyOptions) error {
	if opts.AllowDown {
		return nil
	}
	return &RuleError{Switch: sw, Err: ErrSwitchDown}
}

// encodeError returns the error for an operation that cannot be encoded, with its rule.
func (st *step) encodeError(err error) error {
	re := &RuleError{Switch: st.sw, Err: fmt.Errorf("%w: %w", ErrInvalid, err)}
	var me *messageError
	if errors.As(err, &me) && me.op != nil {
		for i := range st.ops {
			if st.ops[i].Message == me.op {
				re.Rule = st.ops[i].Rule
			}
		}
	}
	return re
}

// refusalError returns an error for the first refusal of a switch, with its rule. before is the
// number of messages sent ahead of the step's operations.
func (st *step) refusalError(errs []batchError, before int) error {
	if len(errs) == 0 {
		return nil
	}
	e := errs[0]
	re := &RuleError{Switch: st.sw, Reply: e.err, Err: ErrRefused}
	if i := e.index - before; i >= 0 && i < len(st.ops) {
		re.Rule = st.ops[i].Rule
	}
	return re
}

// runBundleStep makes the step's change atomic. The switch checks each part when it is added, and
// the bundle is committed only if it has accepted all. Bundles cannot contain meters: new meters
// are added before the bundle, and old ones are deleted after it.
func (in *installer) runBundleStep(ctx context.Context, s *Switch, st step, opts ApplyOptions) error {
	before, inside, after := st.parts()
	opts.Atomic = false
	if len(before.ops) > 0 {
		if err := in.startStep(ctx, before, opts)(); err != nil {
			return err
		}
	}
	err := runBundle(ctx, s.ch, inside)
	switch {
	case errors.Is(err, ErrSwitchDown):
		return switchLost(st.sw, opts)
	case err != nil:
		return err
	case len(after.ops) > 0:
		return in.startStep(ctx, after, opts)()
	}
	return nil
}

// parts splits a step into the operations before its bundle, in it, and after it.
func (st *step) parts() (before, inside, after step) {
	before.sw, inside.sw, after.sw = st.sw, st.sw, st.sw
	for _, op := range st.ops {
		m, isMeter := op.Message.(*openflow.MeterMod)
		switch {
		case !isMeter:
			inside.ops = append(inside.ops, op)
		case m.Command == openflow.MeterDelete:
			after.ops = append(after.ops, op)
		default:
			before.ops = append(before.ops, op)
		}
	}
	return before, inside, after
}

// result returns the error of the step, with the switch, from the results of channel.wait: err, or
// the first refusal. before is the number of messages sent ahead of the step's operations.
func (st *step) result(errs []batchError, before int, err error) error {
	if err != nil {
		return &RuleError{Switch: st.sw, Err: err}
	}
	return st.refusalError(errs, before)
}

// rollBack sends the operations of a rollback, those of the last wave first. It waits, so that the
// caller's next change finds the switches as they were before, but with its own deadline, because
// the caller's may have passed.
func (in *installer) rollBack(ops []ledger.Op, waves [][]openflow.DatapathID) {
	ctx, cancel := context.WithTimeout(context.Background(), in.timeout)
	defer cancel()
	for _, wave := range slices.Backward(arrangeWaves(ops, waves)) {
		if err := in.runSteps(ctx, wave, ApplyOptions{AllowDown: true}); err != nil {
			in.logLimiter.Warn(in.log, "restoring rules after a failed change", "error", err)
		}
	}
}
