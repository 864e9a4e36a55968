package sos

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestWaitingIsBounded checks that the time for which a first packet waits for its turn counts as
// part of its set-up time, and is at most half of that.
func TestWaitingIsBounded(t *testing.T) {
	const limit = 10 * time.Second
	for _, c := range []struct {
		name        string
		free        time.Duration // when there is room
		begun       bool
		waits, left time.Duration
	}{
		{"at once", 0, true, 0, limit},
		{"late", 3 * time.Second, true, 3 * time.Second, limit - 3*time.Second},
		{"too late", limit, false, limit / 2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &setup{ss: &session{}, setups: &setups{
					core: &core{}, sessions: &sessions{halfOpen: make(chan struct{}, 2)}, active: make(chan struct{}, 1),
				}}
				freed := make(chan struct{})
				s.active <- struct{}{}
				time.AfterFunc(c.free, func() { <-s.active; close(freed) })
				began, begun := time.Now(), false
				err := s.runLimited(t.Context(), limit, func(ctx context.Context) error {
					begun = true
					if deadline, _ := ctx.Deadline(); time.Until(deadline) != c.left {
						t.Errorf("%v are left, want %v", time.Until(deadline), c.left)
					}
					return nil
				})
				if waited := time.Since(began); begun != c.begun || (err == nil) != c.begun || waited != c.waits {
					t.Errorf("begun: %v (%v) after %v, want %v after %v", begun, err, waited, c.begun, c.waits)
				}
				<-freed
			})
		})
	}
}
