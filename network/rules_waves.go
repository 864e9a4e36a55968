package network

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network/ledger"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// executeWaves writes one wave after the other and deletes nothing. With Atomic, the switches of
// later waves receive their bundles while the first wave is written.
func (in *installer) executeWaves(ctx context.Context, c *ledger.Change, opts ApplyOptions, m *progress) error {
	waves := arrangeWaves(c.Writes, opts.Waves)
	later := waves
	if len(waves) > 1 {
		later = waves[1:]
		for i := range waves[0] {
			waves[0][i].commitAtOnce = true
		}
	}
	if opts.Atomic {
		defer discardBundles(later)
		if err := in.prepareBundles(later, opts); err != nil {
			return err
		}
	}
	for i, wave := range waves {
		if i == len(waves)-len(later) {
			if err := awaitFilled(ctx, later, opts); err != nil {
				return err
			}
		}
		if err := in.runSteps(ctx, wave, opts); err != nil {
			return err
		}
		m.waveDone()
	}
	return nil
}

// arrangeWaves groups operations into waves of one step for each switch. It leaves out empty
// waves; operations of switches that are in no wave belong to the first.
func arrangeWaves(ops []ledger.Op, waves [][]openflow.DatapathID) [][]step {
	out := make([][]step, max(1, len(waves)))
	for _, st := range writeSteps(ops, false) {
		i := slices.IndexFunc(waves, func(w []openflow.DatapathID) bool { return slices.Contains(w, st.sw) })
		out[max(i, 0)] = append(out[max(i, 0)], st)
	}
	return slices.DeleteFunc(out, func(w []step) bool { return len(w) == 0 })
}

// prepareBundles sends the bundles of the waves, to be committed later.
func (in *installer) prepareBundles(waves [][]step, opts ApplyOptions) error {
	for _, wave := range waves {
		for i := range wave {
			st := &wave[i]
			s := in.switches.accepting(st.sw)
			if s == nil {
				if err := switchLost(st.sw, opts); err != nil {
					return err
				}
				continue
			}
			if !st.fits(s) || !s.caps.Bundles || len(st.ops) < 2 || slices.ContainsFunc(st.ops, isMeter) {
				continue
			}
			b, err := openBundle(s.ch, *st)
			if err != nil {
				return err
			}
			st.bundle = b
		}
	}
	return nil
}

// awaitFilled waits until the switches of the waves have accepted their bundles.
func awaitFilled(ctx context.Context, waves [][]step, opts ApplyOptions) error {
	var firstErr error
	for _, wave := range waves {
		for i := range wave {
			b := wave[i].bundle
			if b == nil {
				continue
			}
			err := b.awaitFilled(ctx)
			if errors.Is(err, ErrSwitchDown) {
				err = switchLost(wave[i].sw, opts)
				wave[i].bundle = nil
			}
			if firstErr == nil {
				firstErr = err
			}
		}
	}
	return firstErr
}

// isMeter reports whether the operation changes a meter.
func isMeter(op ledger.Op) bool {
	_, ok := op.Message.(*openflow.MeterMod)
	return ok
}

// discardBundles discards the bundles that were not committed.
func discardBundles(waves [][]step) {
	for _, wave := range waves {
		for _, st := range wave {
			if st.bundle != nil {
				st.bundle.discard()
			}
		}
	}
}

// progress tells the caller of a change how far it is, and measures how long each part takes.
type progress struct {
	opts   ApplyOptions
	report rule.Report
	last   time.Time
	done   bool // everything is written
}

// newProgress returns the progress of a change that begins now.
func newProgress(c *ledger.Change, opts ApplyOptions) *progress {
	m := &progress{opts: opts, last: time.Now()}
	if opts.Report != nil {
		m.report.Switches = countRules(c)
	}
	return m
}

// countRules counts a change's rules by switch.
func countRules(c *ledger.Change) []rule.SwitchReport {
	var out []rule.SwitchReport
	for _, op := range slices.Concat(c.Writes, c.Deletes) {
		m, ok := op.Message.(*openflow.FlowMod)
		if !ok {
			continue
		}
		i, known := slices.BinarySearchFunc(out, op.Switch, func(r rule.SwitchReport, sw openflow.DatapathID) int {
			return cmp.Compare(r.Switch, sw)
		})
		if !known {
			out = slices.Insert(out, i, rule.SwitchReport{Switch: op.Switch})
		}
		switch m.Command {
		case openflow.FlowAdd:
			out[i].Added++
		case openflow.FlowModify, openflow.FlowModifyStrict:
			out[i].Modified++
		default:
			out[i].Deleted++
		}
	}
	return out
}

// lap returns the time since its previous call.
func (m *progress) lap() time.Duration {
	now := time.Now()
	d := now.Sub(m.last)
	m.last = now
	return d
}

// waveDone records that a wave is confirmed.
func (m *progress) waveDone() { m.report.Waves = append(m.report.Waves, m.lap()) }

// allWritten records that everything is written.
func (m *progress) allWritten() {
	if m.opts.Written != nil {
		m.opts.Written()
	}
	m.done = true
	m.lap()
}

// fillReport fills in the caller's report.
func (m *progress) fillReport() {
	if m.opts.Report == nil {
		return
	}
	if m.done {
		m.report.Deleting = m.lap()
	}
	*m.opts.Report = m.report
}
