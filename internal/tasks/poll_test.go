package tasks

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestPoll checks that Poll returns with f's success, or with its last error at the deadline.
func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, notYet := 0, errors.New("not yet")
		if err := Poll(t.Context(), time.Minute, "the third call", func() error {
			if calls++; calls < 3 {
				return notYet
			}
			return nil
		}); err != nil || calls != 3 {
			t.Errorf("%d calls, %v", calls, err)
		}
		err := Poll(t.Context(), time.Minute, "nothing", func() error { return notYet })
		if !errors.Is(err, notYet) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "wait for nothing") {
			t.Errorf("%v", err)
		}
	})
}
