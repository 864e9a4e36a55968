package experiment

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// refusing acknowledges some writes and refuses all others.
type refusing struct{ left atomic.Int64 }

var errRefused = errors.New("the disk is full")

// Write implements nameWriter.
func (w *refusing) Write(context.Context, *record.Record) error {
	pause.For(time.Second/4, "an answer takes time")
	if w.left.Add(-1) < 0 {
		return errRefused
	}
	return nil
}

// TestKillsNeedWrites checks that a kill counts only after a number of acknowledged writes, and that
// otherwise the error says why there are none.
func TestKillsNeedWrites(t *testing.T) {
	for writes, enough := range map[int64]bool{0: false, minKillWrites - 1: false, minKillWrites + 20: true} {
		synctest.Test(t, func(t *testing.T) {
			rig, to := &namesRig{names: make([]frame.GUID, 4)}, &refusing{}
			to.left.Store(writes)
			kill := func() { to.left.Store(0) }
			a, err := rig.writeTo(t.Context(), to, kill)
			if enough {
				if err != nil || a.writes < minKillWrites || len(a.numbers) != len(rig.names) {
					t.Errorf("%d writes: %d are counted, of %d names, %v", writes, a.writes, len(a.numbers), err)
				}
				return
			}
			if !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "writes are acknowledged") {
				t.Errorf("%d writes: %v, want what was acknowledged and the last error", writes, err)
			}
		})
	}
}
