package tasks

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Sleep takes its time, and says why if it does not.
func TestSleep(t *testing.T) {
	began := time.Now()
	if err := Sleep(t.Context(), 20*time.Millisecond); err != nil || time.Since(began) < 20*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := Sleep(ctx, time.Hour); !errors.Is(err, why) {
		t.Errorf("%v, want %v", err, why)
	}
}
