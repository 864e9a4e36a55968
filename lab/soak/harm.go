package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
)

// harm is what is done to the network while the loads run. Each kind of it has
// random numbers of its own, so that its order depends on the seed alone.
type harm struct {
	*fleet
	program string // sluice-lab, which the hostile switch is started from
	rec     *record
	seed    uint64
	kinds   []string // of programs that are killed; none: all
}

// all are the kinds of harm that nobody may notice: killing programs is not among them.
func (h *harm) all() []func(context.Context, <-chan struct{}) error {
	all := []func(context.Context, <-chan struct{}) error{h.flapLinks, h.moveDevice, h.changePromises, h.hostileSwitch, h.strangers}
	for i, name := range rogues {
		all = append(all, h.hostileHost(name, uint64(6+i)))
	}
	return all
}

// numbers are those of one kind of harm.
func (h *harm) numbers(kind uint64) *rand.Rand { return rand.New(rand.NewPCG(h.seed, kind)) }

// between is a random duration.
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)))
}

// order is the order of kills: every program once in each round, and in the first
// round one of each kind first, so that a short soak has all kinds.
func order(r *rand.Rand, all []kill, first bool) []kill {
	out := slices.Clone(all)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	if !first {
		return out
	}
	seen := map[program]bool{}
	var one, more []kill
	for _, k := range out {
		if seen[k.program] {
			more = append(more, k)
		} else {
			one = append(one, k)
		}
		seen[k.program] = true
	}
	return append(one, more...)
}

// ofKinds leaves the programs of some kinds; without any, all.
func ofKinds(all []kill, kinds []string) []kill {
	if len(kinds) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(k kill) bool { return !slices.Contains(kinds, string(k.program)) })
}

// killPrograms kills one program after the other. One that does not come back ends
// the soak.
func (h *harm) killPrograms(ctx context.Context, stop <-chan struct{}) error {
	r, all := h.numbers(1), ofKinds(h.kills(), h.kinds)
	for first := true; ; first = false {
		for _, k := range order(r, all, first) {
			if !rest(ctx, stop, between(r, 2*time.Second, 5*time.Second)) {
				return context.Cause(ctx)
			}
			n := h.rec.begin(incident{program: k.program, name: k.name, part: k.part})
			if err := k.do(ctx); err != nil {
				return fmt.Errorf("after %s %s was killed: %w", k.program, k.name, err)
			}
			h.rec.end(n)
		}
	}
}

// flapLinks takes one link away for a moment, and then another.
func (h *harm) flapLinks(ctx context.Context, stop <-chan struct{}) error {
	r, all := h.numbers(2), flapping()
	for {
		name, away := all[r.IntN(len(all))], between(r, 100*time.Millisecond, 2*time.Second)
		if !rest(ctx, stop, between(r, 2*time.Second, 6*time.Second)) {
			return context.Cause(ctx)
		}
		if err := h.lab.SetLink(ctx, name, false); err != nil {
			return err
		}
		rest(ctx, nil, away)
		if err := h.lab.SetLink(context.WithoutCancel(ctx), name, true); err != nil {
			return err
		}
		h.rec.event("links away for 0.1 to 2 s")
	}
}

// moveLimit is how long a move may take.
const moveLimit = 15 * time.Second

// moveDevice has the device go to its other place and back.
func (h *harm) moveDevice(ctx context.Context, stop <-chan struct{}) error {
	const load = "moves of the device"
	r := h.numbers(3)
	for n := 1; ; n++ {
		if !rest(ctx, stop, between(r, 300*time.Millisecond, 4*time.Second)) {
			return context.Cause(ctx)
		}
		moving := h.runningDevice() // it may be killed in the move
		began := time.Now()
		limit, cancel := context.WithTimeout(ctx, moveLimit)
		_, err := moving.Move(limit, deviceInterfaces[n%len(deviceInterfaces)])
		cancel()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			h.rec.fail(failure{load: load, part: partHandover, kind: moveFailed, began: began, at: time.Now(), err: err})
		default:
			h.rec.right(load, partHandover, 1, 0)
		}
	}
}

// promise is something that the controller is told and told no more, while
// traffic that it is about runs.
type promise struct {
	name      string
	put, drop func(context.Context) error
	unsure    bool // the last change may have been carried out or not
}

// changePromises withdraws a class or the definition of critical flows, and makes
// it anew.
func (h *harm) changePromises(ctx context.Context, stop <-chan struct{}) error {
	r := h.numbers(4)
	all := []*promise{
		{name: "changes of the class", put: h.putClass, drop: h.dropClass},
		{name: "changes of critical flows", put: h.putCritical, drop: h.dropCritical},
	}
	for {
		over := !rest(ctx, stop, between(r, 3*time.Second, 8*time.Second))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if over {
			return h.restore(ctx, all)
		}
		h.change(ctx, all[r.IntN(len(all))])
	}
}

func (h *harm) change(ctx context.Context, p *promise) {
	began := time.Now()
	err := p.drop(ctx)
	if p.unsure {
		err = nil // it may not be there
	}
	if err == nil {
		err = p.put(ctx)
	}
	p.unsure = err != nil
	if err != nil && ctx.Err() == nil {
		h.rec.fail(failure{load: p.name, part: partQoS, kind: moveFailed, began: began, at: time.Now(), err: err})
		return
	}
	h.rec.right(p.name, partQoS, 1, 0)
}

// restore has all promises made at the end.
func (h *harm) restore(ctx context.Context, all []*promise) error {
	for _, p := range all {
		err := testbed.Poll(ctx, p.name, func() error {
			if !p.unsure {
				return nil
			}
			_ = p.drop(ctx) // it may not be there
			err := p.put(ctx)
			p.unsure = err != nil
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
