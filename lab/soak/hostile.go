package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/sluice-net/sluice/lab/hostile"
	"github.com/sluice-net/sluice/lab/testbed"
)

// A hostile switch or host behaves in one way for a random time between hostileLow and hostileHigh,
// and then in another.
const (
	hostileLow, hostileHigh = 2 * time.Second, 6 * time.Second
	// frameInterval is the time between two frames of a hostile host. A shorter one would take
	// processor time from the programs under test.
	frameInterval = 2 * time.Millisecond
)

// rogues lists the hostile hosts. The first is beside the hosts whose connections SOS carries, and
// the second is where the device moves.
var rogues = []string{"rogue1", "rogue2"}

// hostileSwitch runs one kind of hostile switch after the other.
func (h *harm) hostileSwitch(ctx context.Context, stop <-chan struct{}) error {
	r := h.random(5)
	for kinds := []hostile.Kind(nil); ; kinds = kinds[1:] {
		if len(kinds) == 0 {
			kinds = shuffled(r, hostile.Kinds())
		}
		if !pause(ctx, stop, randomDuration(r, time.Second, 3*time.Second)) {
			return context.Cause(ctx)
		}
		if err := h.runHostileSwitch(ctx, stop, kinds[0], randomDuration(r, hostileLow, hostileHigh)); err != nil {
			return err
		}
	}
}

func (h *harm) runHostileSwitch(ctx context.Context, stop <-chan struct{}, k hostile.Kind, d time.Duration) error {
	args := []string{"hostile-switch", k.Name, "--lab", h.lab.Name()}
	for _, v := range h.victims() {
		args = append(args, "--victim", fmt.Sprintf("%v=%v", v.MAC, v.Addr))
	}
	s, err := testbed.StartLowest(ctx, h.lab.Control(), filepath.Join(h.logs, "hostile-switch.log"), h.program, args...)
	if err != nil {
		return err
	}
	defer s.Stop()
	pause(ctx, stop, d)
	select {
	case <-s.Done():
		if ctx.Err() == nil {
			return fmt.Errorf("the hostile switch %s has ended by itself: see hostile-switch.log", k.Name)
		}
	default:
		h.rec.event("a hostile switch for 2 to 6 s")
	}
	return nil
}

// victims returns the hosts whose addresses hostile switches and hosts claim.
func (h *harm) victims() (all []hostile.Host) {
	for _, name := range []string{"client", "web", "x", "y", "critical1", "class2"} {
		host := h.lab.Host(name)
		all = append(all, hostile.Host{MAC: host.MAC(), Addr: host.Addr()})
	}
	return all
}

// hostileHost returns a function that sends one kind of harmful frames after the other from a host.
func (h *harm) hostileHost(name string, kind uint64) func(context.Context, <-chan struct{}) error {
	return func(ctx context.Context, stop <-chan struct{}) error {
		r, victims := h.random(kind), h.victims()
		host := h.lab.Host(name)
		self := hostile.Host{MAC: host.MAC(), Addr: host.Addr()}
		for kinds := []hostile.FrameKind(nil); ; kinds = kinds[1:] {
			if len(kinds) == 0 {
				kinds = shuffled(r, hostile.FrameKinds())
			}
			if !pause(ctx, stop, randomDuration(r, time.Second, 3*time.Second)) {
				return context.Cause(ctx)
			}
			k := kinds[0]
			within, cancel := context.WithTimeout(ctx, randomDuration(r, hostileLow, hostileHigh))
			sent, err := testbed.SendFrames(within, host, "eth0", frameInterval, func(b []byte, n uint64) []byte {
				return k.Append(b, n, self, victims[n%uint64(len(victims))])
			})
			cancel()
			if err == nil && sent == 0 && ctx.Err() == nil {
				err = errors.New("nothing was sent")
			}
			if err != nil {
				return fmt.Errorf("hostile host %s, %s: %w", name, k.Name, err)
			}
			h.rec.event("a hostile host for 2 to 6 s")
		}
	}
}

func shuffled[T any](r *rand.Rand, all []T) []T {
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}
