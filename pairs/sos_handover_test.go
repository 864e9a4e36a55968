package pairs

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-net/sluice/experiment/stage"
	"github.com/sluice-net/sluice/lab/delayline"
	sos "github.com/sluice-net/sluice/sos/plugin"
)

// whole has the download be as large as the promise says; it takes some minutes.
var whole = flag.Bool("whole", false, "have the mobile device download 500 MB")

const (
	moves      = 20
	keptRate   = 0.8 // of the rate of a device that stands still
	wholeBytes = 500e6
	someBytes  = 100e6
)

// TestMobileDeviceIsCarried has a device download over a long link while it moves from
// edge to edge: agents carry the connection all the time.
func TestMobileDeviceIsCarried(t *testing.T) {
	w, m := newRoaming(t, "pairmobile", delayline.Params{Rate: 40e6, Delay: 40 * time.Millisecond, Loss: 0.0005})
	bytes := int64(someBytes)
	if *whole {
		bytes = wholeBytes
	}
	w.publish(bytes)
	w.whitelist()
	before := w.carried("standing still")
	moved := make(chan error, 1)
	pause := before.Total / (moves + 1)
	go func() { moved <- wander(t.Context(), m, pause) }()
	moving := w.carried("moving")
	w.must(<-moved)
	after := w.carried("standing still again") // the machine has other things to do, and not always as many
	still := (before.Mbit() + after.Mbit()) / 2
	part := moving.Mbit() / still
	t.Logf("%d MB: %.1f and %.1f Mbit/s standing still before and after, %.1f with %d moves, that is %.0f %%", bytes/1e6, before.Mbit(), after.Mbit(), moving.Mbit(), moves, 100*part)
	if part < keptRate {
		t.Errorf("%.0f %% of the rate is left, want %.0f", 100*part, 100*keptRate)
	}
}

// carried is a download by the device that agents carry from its beginning to its end.
func (w *world) carried(what string) stage.Download {
	w.t.Helper()
	sessions, d := w.downloadAt(device)
	if len(sessions) != 1 {
		w.t.Fatalf("%s: %d sessions carried the connection, want 1; directly went %+v", what, len(sessions), w.directs())
	}
	w.must(stage.Poll(w.t.Context(), "the session's end", func() error {
		all, err := w.Sessions(w.t.Context())
		for _, r := range all {
			if r.ID != sessions[0].ID {
				continue
			}
			sessions[0] = r
			if r.State == sos.StateEnded {
				return err
			}
		}
		return fmt.Errorf("it is %s: %w", sessions[0].State, err)
	}))
	if r := sessions[0]; r.How != "closed" || r.BytesDown < uint64(d.Bytes) {
		w.t.Errorf("%s: the session carried %d bytes of %d and ended so: %q", what, r.BytesDown, d.Bytes, r.How)
	}
	return d
}

// directs says why connections went directly.
func (w *world) directs() []sos.Direct {
	w.t.Helper()
	var status sos.Status
	w.must(w.Get(w.t.Context(), "/api/v1/sos/status", &status))
	return status.Direct
}

// wander has the device go from radio to radio, with a pause before each move.
func wander(ctx context.Context, m *stage.Mobile, pause time.Duration) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for n := range moves {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if _, err := m.Move(ctx, fmt.Sprintf("eth%d", (n+1)%mobility.Interfaces)); err != nil {
			return fmt.Errorf("move %d: %w", n+1, err)
		}
	}
	return nil
}
