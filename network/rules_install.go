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
	// bundle, if set, is the bundle that holds the operations already.
	bundle *bundle
	// commitAtOnce stages come before others that take longer: their bundles are committed with
	// what is in them, for the change is undone if the switch does not take a part.
	commitAtOnce bool
}

// installer brings changes of the ledger into the switches.
type installer struct {
	ledger     *ledger.Ledger
	switches   *registry
	timeout    time.Duration // of a change
	log        *slog.Logger
	logLimiter lograte.Limit // of changes that were not taken
}

// execute sends a change and waits for its barriers: what is to be written
// first, then what is to be deleted, so that a packet finds the old rule or the
// new one, never none.
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
			_ = tasks.Sleep(ctx, opts.Linger) // or what is to go goes at once
		}
		ctx, cancel = context.WithTimeout(ctx, deleteTimeout)
		defer cancel()
	}
	if err := in.runSteps(ctx, deleteSteps(c.Deletes), ApplyOptions{AllowDown: true, Atomic: opts.Atomic}); err != nil {
		in.logLimiter.Warn(in.log, "deleting rules", "error", err) // what is wanted is there
		in.deleteLater(c.Deletes)
	}
	return nil
}

// deleteLater leaves deletions that have not been confirmed to the switches'
// queues, each by itself: a switch that is cut off but not gone does them when it
// is reached again, and one that is gone when it connects.
func (in *installer) deleteLater(ops []ledger.Op) {
	for _, st := range deleteSteps(ops) {
		if err := in.enqueue(st, true); err != nil {
			in.logLimiter.Warn(in.log, "deleting rules", "switch", st.sw, "error", err)
		}
	}
}

// enqueue leaves a stage, which changes rules or renews them, to its switch's queue and does not wait. Who
// is not connected, or has connected since it was planned, is brought in step by that.
func (in *installer) enqueue(st step, changes bool) error {
	s := in.switches.accepting(st.sw)
	if s == nil || !st.fits(s) {
		return nil
	}
	_, err := s.ch.queueBatch(st.messages(), changes)
	return err
}

// fits reports whether the stage was planned for what the switch has now.
func (st *step) fits(s *Switch) bool {
	return !slices.ContainsFunc(st.ops, func(op ledger.Op) bool { return !op.Fits(s.layout) })
}

func (st *step) messages() []openflow.Message {
	msgs := make([]openflow.Message, len(st.ops))
	for i, op := range st.ops {
		msgs[i] = op.Message
	}
	return msgs
}

// deleteTimeout bounds the wait for deletions after waves: a switch that no packet
// goes to any more must not hold up the next change when it is dead.
const deleteTimeout = time.Second

// executeAtomic makes the change of each switch one bundle, deletions included.
func (in *installer) executeAtomic(ctx context.Context, c *ledger.Change, opts ApplyOptions) error {
	stages := writeSteps(c.Writes, opts.Ordered)
	for _, d := range deleteSteps(c.Deletes) {
		joined := false
		for i := range stages {
			if !joined && stages[i].sw == d.sw {
				stages[i].ops = append(stages[i].ops, d.ops...)
				joined = true
			}
		}
		if !joined {
			stages = append(stages, d)
		}
	}
	return in.runSteps(ctx, stages, opts)
}

// splitBySwitch groups operations by switch: in order, a new stage whenever the switch
// changes; otherwise one stage for each switch.
func splitBySwitch(ops []ledger.Op, ordered bool) []step {
	var out []step
	at := map[openflow.DatapathID]int{}
	for _, op := range ops {
		i, known := at[op.Switch]
		if ordered {
			i = len(out) - 1
			known = i >= 0 && out[i].sw == op.Switch
		}
		if !known {
			i = len(out)
			at[op.Switch] = i
			out = append(out, step{sw: op.Switch})
		}
		out[i].ops = append(out[i].ops, op)
	}
	return out
}

// writeSteps splits what is to be written: on each switch, tables that others go on to first.
func writeSteps(ops []ledger.Op, ordered bool) []step {
	out := splitBySwitch(ops, ordered)
	for _, st := range out {
		slices.SortStableFunc(st.ops, func(a, b ledger.Op) int { return b.Depth() - a.Depth() })
	}
	return out
}

// deleteSteps splits what is to be deleted: on each switch, tables that go on to others first.
func deleteSteps(ops []ledger.Op) []step {
	out := splitBySwitch(ops, false)
	for _, st := range out {
		slices.SortStableFunc(st.ops, func(a, b ledger.Op) int { return a.Depth() - b.Depth() })
	}
	return out
}

// runSteps sends stages, one after the other if ordered, else all at once.
func (in *installer) runSteps(ctx context.Context, stages []step, opts ApplyOptions) error {
	var waits []func() error
	for _, st := range stages {
		wait := in.startStep(ctx, st, opts)
		if !opts.Ordered {
			waits = append(waits, wait)
			continue
		}
		if err := wait(); err != nil {
			return err
		}
	}
	var first error
	for _, wait := range waits {
		if err := wait(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// startStep sends one stage and returns how to wait for it.
func (in *installer) startStep(ctx context.Context, st step, opts ApplyOptions) (wait func() error) {
	s := in.switches.accepting(st.sw)
	if s == nil {
		return func() error { return switchLost(st.sw, opts) }
	}
	if !st.fits(s) {
		return func() error { return switchLost(st.sw, opts) } // it was, when this was planned
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

// switchLost is the outcome for a switch that is not connected: what is declared will
// be written when it connects, if the caller is content with that.
func switchLost(sw openflow.DatapathID, opts ApplyOptions) error {
	if opts.AllowDown {
		return nil
	}
	return &RuleError{Switch: sw, Err: ErrSwitchDown}
}

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

// refusalError turns the first error of a switch into one that names the rule.
// before is the number of messages sent ahead of the stage's operations.
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

// runBundleStep makes the stage's change atomic. The switch checks each part when it is
// added; only when all were taken is the bundle committed. Meters cannot be in
// bundles: new ones are made before, old ones deleted after.
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

// parts splits a stage into what comes before its bundle, in it, and after it.
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

// result turns what wait returned into an error that names the switch.
func (st *step) result(errs []batchError, before int, err error) error {
	if err != nil {
		return &RuleError{Switch: st.sw, Err: err}
	}
	return st.refusalError(errs, before)
}

// rollBack sends the operations of a rollback, the switches of the last wave first.
// It waits, so that the caller's next change finds the switches as they were, but
// it has its own deadline: the caller's may have passed.
func (in *installer) rollBack(ops []ledger.Op, waves [][]openflow.DatapathID) {
	ctx, cancel := context.WithTimeout(context.Background(), in.timeout)
	defer cancel()
	for _, wave := range slices.Backward(arrangeWaves(ops, waves)) {
		if err := in.runSteps(ctx, wave, ApplyOptions{AllowDown: true}); err != nil {
			in.logLimiter.Warn(in.log, "restoring rules after a refused change", "error", err)
		}
	}
}
