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

// executeWaves writes one wave after the other. Nothing is deleted here. With Atomic, the
// switches of later waves are given their bundles to hold ready while the first is written.
func (in *installer) executeWaves(ctx context.Context, c *ledger.Change, opts ApplyOptions, m *measured) error {
	waves := arrange(c.Writes, opts.Waves)
	later := waves
	if len(waves) > 1 {
		later = waves[1:]
		for i := range waves[0] {
			waves[0][i].first = true
		}
	}
	if opts.Atomic {
		defer discard(later)
		if err := in.prepare(later, opts); err != nil {
			return err
		}
	}
	for i, wave := range waves {
		if i == len(waves)-len(later) {
			if err := filled(ctx, later, opts); err != nil {
				return err
			}
		}
		if err := in.stages(ctx, wave, opts); err != nil {
			return err
		}
		m.wave()
	}
	return nil
}

// arrange puts operations into waves of one stage for each switch. Waves without
// operations are left out; operations of switches in no wave go with the first.
func arrange(ops []ledger.Op, waves [][]openflow.DatapathID) [][]stage {
	out := make([][]stage, max(1, len(waves)))
	for _, st := range writing(ops, false) {
		i := slices.IndexFunc(waves, func(w []openflow.DatapathID) bool { return slices.Contains(w, st.sw) })
		out[max(i, 0)] = append(out[max(i, 0)], st)
	}
	return slices.DeleteFunc(out, func(w []stage) bool { return len(w) == 0 })
}

// prepare sends the switches of waves their bundles, to hold ready.
func (in *installer) prepare(waves [][]stage, opts ApplyOptions) error {
	for _, wave := range waves {
		for i := range wave {
			st := &wave[i]
			s := in.switches.session(st.sw)
			if s == nil {
				if err := lost(st.sw, opts); err != nil {
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
			st.ready = b
		}
	}
	return nil
}

// filled waits until the switches of waves have all of their bundles.
func filled(ctx context.Context, waves [][]stage, opts ApplyOptions) error {
	var first error
	for _, wave := range waves {
		for i := range wave {
			b := wave[i].ready
			if b == nil {
				continue
			}
			err := b.filled(ctx)
			if errors.Is(err, ErrSwitchDown) {
				err = lost(wave[i].sw, opts)
				wave[i].ready = nil
			}
			if first == nil {
				first = err
			}
		}
	}
	return first
}

func isMeter(op ledger.Op) bool {
	_, ok := op.Message.(*openflow.MeterMod)
	return ok
}

// discard gives up the bundles that were not committed.
func discard(waves [][]stage) {
	for _, wave := range waves {
		for _, st := range wave {
			if st.ready != nil {
				st.ready.discard()
			}
		}
	}
}

// measured tells a caller what is done for it, and how long that takes.
type measured struct {
	opts   ApplyOptions
	report rule.Report
	last   time.Time
	done   bool // everything is written
}

func newMeasured(c *ledger.Change, opts ApplyOptions) *measured {
	m := &measured{opts: opts, last: time.Now()}
	if opts.Report != nil {
		m.report.Switches = counts(c)
	}
	return m
}

// counts counts a change's rules by switch.
func counts(c *ledger.Change) []rule.SwitchReport {
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

// lap is the time since it was last called.
func (m *measured) lap() time.Duration {
	now := time.Now()
	d := now.Sub(m.last)
	m.last = now
	return d
}

func (m *measured) wave() { m.report.Waves = append(m.report.Waves, m.lap()) }

func (m *measured) written() {
	if m.opts.Written != nil {
		m.opts.Written()
	}
	m.done = true
	m.lap()
}

// end fills in the report.
func (m *measured) end() {
	if m.opts.Report == nil {
		return
	}
	if m.done {
		m.report.Deleting = m.lap()
	}
	*m.opts.Report = m.report
}
