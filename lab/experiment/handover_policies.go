package experiment

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/handover"
)

const (
	policyRate = 1000
	// policyOverlap is how long the old branch stays after a seamless move.
	policyOverlap = 200 * time.Millisecond
	// branchLinks is the number of links of a new branch whose join is the root: from the root to
	// the core, from there to the edge, and the radio.
	branchLinks = 3
)

func handoverPolicies() Experiment {
	return Experiment{
		Name:     "handover-policies",
		Title:    "Saving against seamless: packets lost, silence, and bandwidth spent twice",
		Question: "What does a handover without loss cost in bandwidth, and what does one without that cost lose?",
		Source:   "dissertation 2017, section 4.3.3.2: saving interrupts for L_i, seamless for 0; no measurements",
		Run:      runHandoverPolicies,
	}
}

// standingStill is the case without a move, which shows the pauses of this machine.
const standingStill = "standing still"

// roamCase is one way to move.
type roamCase struct {
	name   string
	policy string
	radios int           // 1: the device leaves the old place when it requests the new one
	lead   time.Duration // how long before the move the new place is prepared; 0 means not at all
}

func roamCases(s Scale) []roamCase {
	ms := time.Millisecond
	all := []roamCase{
		{standingStill, "", 2, 0},
		{"saving, one radio", "saving", 1, 0},
		{"saving, two radios", "saving", 2, 0},
		{"seamless, one radio, 100 ms ahead", "seamless", 1, 100 * ms},
		{"seamless, two radios, not ahead", "seamless", 2, 0},
		{"seamless, two radios, 20 ms ahead", "seamless", 2, 20 * ms},
		{"seamless, two radios, 100 ms ahead", "seamless", 2, 100 * ms},
		{"seamless, two radios, 500 ms ahead", "seamless", 2, 500 * ms},
		{"seamless, two radios, 2 s ahead", "seamless", 2, 2000 * ms},
	}
	return pick(s, []roamCase{all[0], all[1], all[2], all[6]}, all, all)
}

// roamSamples holds the effects of one case.
type roamSamples struct {
	gaps, lost []float64
	doubled    int
	reordered  int
	extra      []float64 // kB that arrived at a place where the device was not, times the links of the branch
	switches   int       // largest number of switches that one move has changed
	fallbacks  int
}

type policyRig struct {
	*roamSite
	env  *Env
	raw  *CSV
	next uint16
}

func runHandoverPolicies(ctx context.Context, env *Env) (*Result, error) {
	repeats := pick(env.Scale, 5, 50, 200)
	cases := roamCases(env.Scale)
	raw, err := env.CSV("policies", "case", "run", "gap_seconds", "lost", "doubled", "reordered", "extra_bytes", "switches_written")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	moves := pick(env.Scale, 6, 50, 200)
	env.Steps(len(cases) + 2)
	o := lab.MobilityOptions{
		Interfaces: 3, ControlDelay: 2 * time.Millisecond,
		Link: delayline.Params{Delay: time.Millisecond}, Radio: delayline.Params{Delay: 2 * time.Millisecond},
	}
	r := &Result{Network: fmt.Sprintf("three levels of switches with links of %v and control connections of %v each way; a simulated device with radios of %v, %d packets a second to it, back and forth between two edges whose join is the root", o.Link.Delay, o.ControlDelay, o.Radio.Delay, policyRate)}
	samples := make([]*roamSamples, len(cases))
	var devices []*deviceSamples
	err = env.withRoaming(ctx, "policies", o, func(ctx context.Context, s *roamSite) error {
		for _, policy := range []string{"saving", "seamless"} {
			spec := handover.ClassSpec{Policy: policy, Trigger: "open", Overlap: policyOverlap.String()}
			if err := s.domain.PutClass(ctx, policy, spec); err != nil {
				return err
			}
		}
		rig := &policyRig{roamSite: s, env: env, raw: raw}
		for i, c := range cases {
			env.Step("%s", c.name)
			var err error
			if samples[i], err = rig.measure(ctx, c, repeats); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			env.Logf("silence: median %.1f ms; %.0f lost", median(samples[i].gaps), sum(samples[i].lost))
		}
		var err error
		devices, err = rig.moveDevices(ctx, moves)
		return err
	})
	if err != nil {
		return nil, err
	}
	policiesResult(r, o, cases, samples)
	deviceResult(r, devices)
	return r, nil
}

func sum[T float64 | uint64](values []T) T {
	var total T
	for _, v := range values {
		total += v
	}
	return total
}

// measure lets one device move back and forth.
func (rig *policyRig) measure(ctx context.Context, c roamCase, repeats int) (*roamSamples, error) {
	rig.next++
	here, there := rig.radios[0], rig.radios[2]
	var second []*testbed.Radio
	if c.radios == 2 {
		second = append(second, there)
	}
	device, err := rig.newStation(ctx, rig.next, cmp.Or(c.policy, "saving"), second...)
	if err != nil {
		return nil, err
	}
	if _, err := device.Join(ctx, here); err != nil {
		return nil, err
	}
	out := &roamSamples{}
	for run := range repeats {
		if err := rig.once(ctx, c, run+1, device, here, there, out); err != nil {
			return nil, fmt.Errorf("move %d: %w", run+1, err)
		}
		if c.policy != "" {
			here, there = there, here
		}
	}
	return out, nil
}

// tally counts packets that arrive at a place where the device is not.
type tally struct{ packets, bytes atomic.Int64 }

// frameOverhead is the size of the Ethernet, IPv4 and UDP headers of a packet.
const frameOverhead = 14 + 20 + 8

func (t *tally) note(payload []byte) {
	t.packets.Add(1)
	t.bytes.Add(int64(len(payload) + frameOverhead))
}

// once makes one move during a stream.
func (rig *policyRig) once(ctx context.Context, c roamCase, run int, d *roamer, from, to *testbed.Radio, out *roamSamples) error {
	stream, err := rig.streamTo(ctx, d.IP, policyRate)
	if err != nil {
		return err
	}
	var extra tally
	var moved atomic.Bool // reports whether the device uses its new place
	hear := func(old bool) func([]byte, time.Time) {
		return func(payload []byte, at time.Time) {
			if old == moved.Load() {
				extra.note(payload)
				if c.radios == 1 {
					return // a single radio is at one place only
				}
			}
			stream.Deliver(payload, at)
		}
	}
	from.Hear(d.IP, hear(true))
	to.Hear(d.IP, hear(false))
	record, began, err := rig.move(ctx, c, stream, d, to, &moved)
	ended := time.Now()
	log := stream.Stop()
	from.Hear(d.IP, nil)
	to.Hear(d.IP, nil)
	if c.policy != "" {
		d.Leave(from)
	}
	if err != nil {
		return err
	}
	report := log.Between(began, ended)
	spent := float64(branchLinks*extra.bytes.Load()) / 1e3
	out.gaps = append(out.gaps, inMS(report.Gap))
	out.lost = append(out.lost, float64(report.Lost))
	out.doubled += report.Doubled
	out.reordered += report.Reordered
	out.extra = append(out.extra, spent)
	out.switches = max(out.switches, record.Changes.Switches)
	if c.policy == "seamless" && record.Fallback != "" {
		out.fallbacks++
	}
	return rig.raw.Row(c.name, run, report.Gap, report.Lost, report.Doubled, report.Reordered, branchLinks*extra.bytes.Load(), record.Changes.Switches)
}

// move prepares, requests the new place, and waits until the old branch is removed.
func (rig *policyRig) move(ctx context.Context, c roamCase, s *testbed.Stream, d *roamer, to *testbed.Radio, moved *atomic.Bool) (handover.Record, time.Time, error) {
	if err := awaitPackets(ctx, s, policyRate/10); err != nil {
		return handover.Record{}, time.Time{}, fmt.Errorf("before the move: %w", err)
	}
	began := time.Now()
	if c.policy == "" {
		return handover.Record{}, began, tasks.Sleep(ctx, 2*policyOverlap)
	}
	if c.lead > 0 {
		if err := rig.domain.Prepare(ctx, d.ID, rig.portOf(to), d.MAC(to)); err != nil {
			return handover.Record{}, began, err
		}
		if err := tasks.Sleep(ctx, c.lead-time.Since(began)); err != nil {
			return handover.Record{}, began, err
		}
	}
	if c.radios == 1 {
		moved.Store(true) // the device leaves the old place to request the new one
	}
	if _, err := d.Move(ctx, to); err != nil {
		return handover.Record{}, began, err
	}
	moved.Store(true)
	if err := tasks.Sleep(ctx, policyOverlap+200*time.Millisecond); err != nil {
		return handover.Record{}, began, err
	}
	record, err := rig.lastRecord(ctx, d.ID)
	return record, began, err
}

func policiesResult(r *Result, o lab.MobilityOptions, cases []roamCase, samples []*roamSamples) {
	table := Table{
		Title: "Each move under a stream of 1,000 packets a second",
		Columns: []string{
			"way", "moves", "silence: median ms", "p95 ms", meanColumn, "formula, one radio, ms", "lost", "lost a move", "doubled before IP", "reordered",
			"extra kB a move", "rate x time x links", "switches written", "fell back to saving",
		},
	}
	const packet = 200 + frameOverhead
	line := Series{Label: "measured"}
	formula := Series{Label: "rate x (lead + overlap) x links", Published: true}
	for i, c := range cases {
		s := samples[i]
		predicted := "0"
		if c.radios == 1 {
			at := latencies{o.ControlDelay, o.ControlDelay, o.ControlDelay, o.Link.Delay, o.Radio.Delay}
			predicted = ms1(inMS(at.predict(modelMoves[1], 1)))
		}
		expected := policyRate * packet * branchLinks * (c.lead + policyOverlap).Seconds() / 1e3
		bound := "0"
		if c.policy == "seamless" {
			bound = ms1(expected)
		}
		table.Add(c.name, len(s.gaps), ms1(median(s.gaps)), ms1(quantile(s.gaps, 0.95)), meanText(s.gaps, 1, 1), predicted, int(sum(s.lost)), ms1(sum(s.lost)/float64(len(s.lost))),
			s.doubled, s.reordered, ms1(median(s.extra)), bound, s.switches, s.fallbacks)
		if c.policy == "seamless" && c.radios == 2 {
			line.Point(inMS(c.lead), median(s.extra))
			formula.Point(inMS(c.lead), expected)
		}
		policyClaim(r, c, s, samples[0])
	}
	r.Tables = append(r.Tables, table)
	if len(line.X) > 1 {
		r.Plots = append(r.Plots, Plot{Name: "extra", Title: "Bandwidth spent twice", X: "prepared ahead, ms", Y: "kB a move on the new branch", Series: []Series{line, formula}})
	}
	r.Note("Extra bytes are those that arrive at the place that the device does not use, times the %d links of a branch.", branchLinks)
	r.Note("A device with one radio is away from its old place from its request on, whatever the policy: what was on the way to the old place is lost.")
}

// policyClaim adds the claims about what a case's policy promises. still holds the effects of the
// machine itself.
func policyClaim(r *Result, c roamCase, s, still *roamSamples) {
	if c.policy == "saving" {
		r.Claim(s.doubled == 0, c.name+": no packet comes twice", "%d in %d moves", s.doubled, len(s.lost))
	}
	if c.policy == "saving" && c.radios == 2 {
		r.Claim(sum(s.lost) == 0, c.name+": nothing lost", "%.0f lost in %d moves", sum(s.lost), len(s.lost))
	}
	if c.policy != "seamless" || c.radios != 2 || c.lead < 100*time.Millisecond {
		return
	}
	r.Claim(sum(s.lost) == 0, c.name+": nothing lost", "%.0f lost in %d moves", sum(s.lost), len(s.lost))
	bound := quantile(still.gaps, 0.95) + inMS(modelBound)
	r.Claim(quantile(s.gaps, 0.95) <= bound, c.name+fmt.Sprintf(": p95 of the silence at most %v above that of standing still", modelBound), "%.1f ms, standing still %.1f ms", quantile(s.gaps, 0.95), quantile(still.gaps, 0.95))
}
