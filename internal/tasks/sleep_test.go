package tasks

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Sleep takes its time, and says why if it does not.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := Sleep(t.Context(), time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		if err := Sleep(ctx, time.Hour); !errors.Is(err, why) || time.Since(began) != time.Minute {
			t.Errorf("%v, want %v", err, why)
		}
	})
}
