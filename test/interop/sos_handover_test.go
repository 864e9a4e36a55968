package interop

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/sos"
)

// moves is how often the device moves in the middle of one download.
const moves = 6

// TestMobileDeviceIsCarried has a device download over a long link while it moves from
// edge to edge: agents carry the connection from its beginning to its end, and every byte
// arrives.
func TestMobileDeviceIsCarried(t *testing.T) {
	t.Parallel()
	w, m := newRoaming(t, "pairmobile", delayline.Params{Rate: 20e6, Delay: 40 * time.Millisecond, Loss: 0.0005})
	const bytes = 20_000_000
	w.publish(bytes)
	w.whitelist()
	moved := make(chan error, 1)
	go func() { moved <- w.wander(m, bytes) }()
	w.carried()
	w.must(<-moved)
}

// carried is a download by the device that agents carry from its beginning to its end.
func (w *world) carried() {
	w.t.Helper()
	sessions, d := w.downloadAt(device)
	if len(sessions) != 1 {
		w.t.Fatalf("%d sessions carried the connection, want 1; directly went %+v", len(sessions), w.directs())
	}
	w.must(testbed.Poll(w.t.Context(), "the session's end", func() error {
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
		w.t.Errorf("the session carried %d bytes of %d and ended so: %q", r.BytesDown, d.Bytes, r.How)
	}
}

// directs says why connections went directly.
func (w *world) directs() []sos.Direct {
	w.t.Helper()
	var status sos.Status
	w.must(w.Get(w.t.Context(), "/api/v1/sos/status", &status))
	return status.Direct
}

// wander has the device go from radio to radio during a download of so many bytes, each time
// after a further part has arrived.
func (w *world) wander(m *testbed.Mobile, bytes int64) error {
	for n := range int64(moves) {
		err := testbed.PollFor(w.t.Context(), 2*time.Minute, "the download", func() error {
			info, err := os.Stat(w.file)
			if err == nil && info.Size() < (n+1)*bytes/(moves+1) {
				err = fmt.Errorf("%d bytes are there", info.Size())
			}
			return err
		})
		if err != nil {
			return err
		}
		if _, err := m.Move(w.t.Context(), fmt.Sprintf("eth%d", (int(n)+1)%mobility.Interfaces)); err != nil {
			return fmt.Errorf("move %d: %w", n+1, err)
		}
	}
	return nil
}
