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

// stage is a group of operations for one switch that ends with a barrier.
type stage struct {
	sw  openflow.DatapathID
	ops []ledger.Op
	// ready, if set, is the bundle that holds the operations already.
	ready *bundle
	// first stages come before others that take longer: their bundles are committed with
	// what is in them, for the change is undone if the switch does not take a part.
	first bool
}

// installer brings changes of the ledger into the switches.
type installer struct {
	ledger   *ledger.Ledger
	switches *registry
	timeout  time.Duration // of a change
	log      *slog.Logger
	upkeep   lograte.Limit // of changes that were not taken
}

// execute sends a change and waits for its barriers: what is to be written
// first, then what is to be deleted, so that a packet finds the old rule or the
// new one, never none.
func (in *installer) execute(ctx context.Context, c *ledger.Change, opts ApplyOptions) error {
	m := newMeasured(c, opts)
	defer m.end()
	if c.Empty() {
		m.written()
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
			m.wave()
			m.written()
		}
		return err
	default:
		if err = in.stages(ctx, writing(c.Writes, opts.Ordered), opts); err == nil {
			m.wave()
		}
	}
	if err != nil {
		return err
	}
	m.written()
	if opts.Waves != nil {
		if opts.Linger > 0 && len(c.Deletes) > 0 {
			_ = tasks.Sleep(ctx, opts.Linger) // or what is to go goes at once
		}
		ctx, cancel = context.WithTimeout(ctx, deletePatience)
		defer cancel()
	}
	if err := in.stages(ctx, deleting(c.Deletes), ApplyOptions{AllowDown: true, Atomic: opts.Atomic}); err != nil {
		in.upkeep.Warn(in.log, "deleting rules", "error", err) // what is wanted is there
		in.deleteLater(c.Deletes)
	}
	return nil
}

// deleteLater leaves deletions that have not been confirmed to the switches'
// queues, each by itself: a switch that is cut off but not gone does them when it
// is reached again, and one that is gone when it connects.
func (in *installer) deleteLater(ops []ledger.Op) {
	for _, st := range deleting(ops) {
		if err := in.post(st, true); err != nil {
			in.upkeep.Warn(in.log, "deleting rules", "switch", st.sw, "error", err)
		}
	}
}

// post leaves a stage, which changes rules or renews them, to its switch's queue and does not wait. Who
// is not connected, or has connected since it was planned, is brought in step by that.
func (in *installer) post(st stage, changes bool) error {
	s := in.switches.session(st.sw)
	if s == nil || !st.fits(s) {
		return nil
	}
	_, err := s.ch.queueBatch(st.messages(), changes)
	return err
}

// fits reports whether the stage was planned for what the switch has now.
func (st *stage) fits(s *Switch) bool {
	return !slices.ContainsFunc(st.ops, func(op ledger.Op) bool { return !op.Fits(s.layout) })
}

func (st *stage) messages() []openflow.Message {
	msgs := make([]openflow.Message, len(st.ops))
	for i, op := range st.ops {
		msgs[i] = op.Message
	}
	return msgs
}

// deletePatience bounds the wait for deletions after waves: a switch that no packet
// goes to any more must not hold up the next change when it is dead.
const deletePatience = time.Second

// executeAtomic makes the change of each switch one bundle, deletions included.
func (in *installer) executeAtomic(ctx context.Context, c *ledger.Change, opts ApplyOptions) error {
	stages := writing(c.Writes, opts.Ordered)
	for _, d := range deleting(c.Deletes) {
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
	return in.stages(ctx, stages, opts)
}

// split groups operations by switch: in order, a new stage whenever the switch
// changes; otherwise one stage for each switch.
func split(ops []ledger.Op, ordered bool) []stage {
	var out []stage
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
			out = append(out, stage{sw: op.Switch})
		}
		out[i].ops = append(out[i].ops, op)
	}
	return out
}

// writing splits what is to be written: on each switch, tables that others go on to first.
func writing(ops []ledger.Op, ordered bool) []stage {
	out := split(ops, ordered)
	for _, st := range out {
		slices.SortStableFunc(st.ops, func(a, b ledger.Op) int { return b.Depth() - a.Depth() })
	}
	return out
}

// deleting splits what is to be deleted: on each switch, tables that go on to others first.
func deleting(ops []ledger.Op) []stage {
	out := split(ops, false)
	for _, st := range out {
		slices.SortStableFunc(st.ops, func(a, b ledger.Op) int { return a.Depth() - b.Depth() })
	}
	return out
}

// stages sends stages, one after the other if ordered, else all at once.
func (in *installer) stages(ctx context.Context, stages []stage, opts ApplyOptions) error {
	var waits []func() error
	for _, st := range stages {
		wait := in.stage(ctx, st, opts)
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

// stage sends one stage and returns how to wait for it.
func (in *installer) stage(ctx context.Context, st stage, opts ApplyOptions) (wait func() error) {
	s := in.switches.session(st.sw)
	if s == nil {
		return func() error { return lost(st.sw, opts) }
	}
	if !st.fits(s) {
		return func() error { return lost(st.sw, opts) } // it was, when this was planned
	}
	in.ledger.Sending(st.sw, st.ops)
	switch {
	case st.ready != nil:
		commit := st.ready.commit()
		return func() error {
			err := commit(ctx)
			if errors.Is(err, ErrSwitchDown) {
				return lost(st.sw, opts)
			}
			return err
		}
	case opts.Atomic && s.caps.Bundles && len(st.ops) > 1 && st.first && !slices.ContainsFunc(st.ops, isMeter):
		return wholeBundle(ctx, s.ch, st, opts)
	case opts.Atomic && s.caps.Bundles && len(st.ops) > 1:
		return func() error { return in.bundle(ctx, s, st, opts) }
	}
	bt, err := s.ch.sendBatch(st.messages())
	if err != nil {
		return func() error { return st.unencodable(err) }
	}
	return func() error {
		errs, err := s.ch.wait(ctx, bt)
		if errors.Is(err, ErrSwitchDown) {
			return lost(st.sw, opts)
		}
		return st.outcome(errs, 0, err)
	}
}

// lost is the outcome for a switch that is not connected: what is declared will
// be written when it connects, if the caller is content with that.
func lost(sw openflow.DatapathID, opts ApplyOptions) error {
	if opts.AllowDown {
		return nil
	}
	return &RuleError{Switch: sw, Err: ErrSwitchDown}
}

func (st *stage) unencodable(err error) error {
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

// refusal turns the first error of a switch into one that names the rule.
// before is the number of messages sent ahead of the stage's operations.
func (st *stage) refusal(errs []batchError, before int) error {
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

// bundle makes the stage's change atomic. The switch checks each part when it is
// added; only when all were taken is the bundle committed. Meters cannot be in
// bundles: new ones are made before, old ones deleted after.
func (in *installer) bundle(ctx context.Context, s *Switch, st stage, opts ApplyOptions) error {
	before, inside, after := st.parts()
	opts.Atomic = false
	if len(before.ops) > 0 {
		if err := in.stage(ctx, before, opts)(); err != nil {
			return err
		}
	}
	err := inBundle(ctx, s.ch, inside)
	switch {
	case errors.Is(err, ErrSwitchDown):
		return lost(st.sw, opts)
	case err != nil:
		return err
	case len(after.ops) > 0:
		return in.stage(ctx, after, opts)()
	}
	return nil
}

// parts splits a stage into what comes before its bundle, in it, and after it.
func (st *stage) parts() (before, inside, after stage) {
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

// outcome turns what wait returned into an error that names the switch.
func (st *stage) outcome(errs []batchError, before int, err error) error {
	if err != nil {
		return &RuleError{Switch: st.sw, Err: err}
	}
	return st.refusal(errs, before)
}

// undo sends the operations of a rollback, the switches of the last wave first.
// It waits, so that the caller's next change finds the switches as they were, but
// it has its own deadline: the caller's may have passed.
func (in *installer) undo(ops []ledger.Op, waves [][]openflow.DatapathID) {
	ctx, cancel := context.WithTimeout(context.Background(), in.timeout)
	defer cancel()
	for _, wave := range slices.Backward(arrange(ops, waves)) {
		if err := in.stages(ctx, wave, ApplyOptions{AllowDown: true}); err != nil {
			in.upkeep.Warn(in.log, "restoring rules after a refused change", "error", err)
		}
	}
}
