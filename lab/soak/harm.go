package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
)

// harm disturbs the network while the loads run. Each kind of harm has random numbers of its own,
// so that its order depends on the seed alone.
type harm struct {
	*fleet
	program string // path of sluice-lab, which runs the hostile switch
	rec     *record
	seed    uint64
	kinds   []string // kinds of programs that are killed; none means all
}

// all returns the kinds of harm that must have no effect on the loads. They do not include killing
// programs.
func (h *harm) all() []func(context.Context, <-chan struct{}) error {
	all := []func(context.Context, <-chan struct{}) error{h.flapLinks, h.moveDevice, h.changePromises, h.hostileSwitch, h.strangers}
	for i, name := range rogues {
		all = append(all, h.hostileHost(name, uint64(6+i)))
	}
	return all
}

// random returns the random numbers of one kind of harm.
func (h *harm) random(kind uint64) *rand.Rand { return rand.New(rand.NewPCG(h.seed, kind)) }

// randomDuration returns a random duration.
func randomDuration(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)))
}

// order returns a random order of kills that has every program once. If first is set, one program
// of each kind comes first, so that a short soak includes all kinds.
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

// filterKinds returns the kills of programs of the given kinds; no kinds means all.
func filterKinds(all []kill, kinds []string) []kill {
	if len(kinds) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(k kill) bool { return !slices.Contains(kinds, string(k.program)) })
}

// killPrograms kills one program after the other. If a program does not become usable again,
// killPrograms returns an error, which ends the soak.
func (h *harm) killPrograms(ctx context.Context, stop <-chan struct{}) error {
	r, all := h.random(1), filterKinds(h.kills(), h.kinds)
	for first := true; ; first = false {
		for _, k := range order(r, all, first) {
			if !pause(ctx, stop, randomDuration(r, 2*time.Second, 5*time.Second)) {
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

// flapLinks takes random links down, one after the other, for a moment each.
func (h *harm) flapLinks(ctx context.Context, stop <-chan struct{}) error {
	r, all := h.random(2), flappingLinks()
	for {
		name, away := all[r.IntN(len(all))], randomDuration(r, 100*time.Millisecond, 2*time.Second)
		if !pause(ctx, stop, randomDuration(r, 2*time.Second, 6*time.Second)) {
			return context.Cause(ctx)
		}
		if err := h.lab.SetLink(ctx, name, false); err != nil {
			return err
		}
		pause(ctx, nil, away)
		if err := h.lab.SetLink(context.WithoutCancel(ctx), name, true); err != nil {
			return err
		}
		h.rec.event("links down for 0.1 to 2 s")
	}
}

// moveLimit bounds the time of a move.
const moveLimit = 15 * time.Second

// moveDevice moves the device to its other place and back, again and again.
func (h *harm) moveDevice(ctx context.Context, stop <-chan struct{}) error {
	const load = "moves of the device"
	r := h.random(3)
	for n := 1; ; n++ {
		if !pause(ctx, stop, randomDuration(r, 300*time.Millisecond, 4*time.Second)) {
			return context.Cause(ctx)
		}
		moving := h.runningDevice() // Its daemon may be killed during the move.
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

// promise is something that the controller promises to running traffic, such as a class or a
// bandwidth for critical flows. The soak withdraws it and makes it again.
type promise struct {
	name      string
	put, drop func(context.Context) error
	unsure    bool // the last change may or may not have been applied
}

// changePromises withdraws a class or the definition of critical flows, and makes it again, until
// stop is closed.
func (h *harm) changePromises(ctx context.Context, stop <-chan struct{}) error {
	r := h.random(4)
	all := []*promise{
		{name: "changes of the class", put: h.putClass, drop: h.dropClass},
		{name: "changes of critical flows", put: h.putCritical, drop: h.dropCritical},
	}
	for {
		over := !pause(ctx, stop, randomDuration(r, 3*time.Second, 8*time.Second))
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
		err = nil // It may not exist.
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

// restore makes the promises whose last change has failed, so that all hold at the end.
func (h *harm) restore(ctx context.Context, all []*promise) error {
	for _, p := range all {
		err := testbed.Poll(ctx, p.name, func() error {
			if !p.unsure {
				return nil
			}
			_ = p.drop(ctx) // It may not exist.
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
