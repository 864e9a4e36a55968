package plugin

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/handover/dhcp"
)

// written is a log that can be read while it is written.
type written struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *written) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

// A device whose requests are refused again and again, as those without a signature are
// of one that signs, fills neither the log nor what is remembered of events.
func TestRefusedRequestsFillNoLog(t *testing.T) {
	var out written
	r := start(t, newWorld(treeLinks), newStore(t), nil, func(s *Service) { s.log = slog.New(slog.NewTextHandler(&out, nil)) })
	before, began := r.bus.Last(), time.Now()
	const requests = 2000
	for range requests {
		r.tellVerdict(&dhcp.Decision{Verdict: dhcp.Denied, Reason: strings.Repeat("without a signature ", 1000)}, incoming{})
	}
	most := 10 + int(time.Since(began)/time.Second) + 1
	out.mu.Lock()
	lines, size := strings.Count(out.text.String(), "DHCP message refused"), out.text.Len()
	out.mu.Unlock()
	if lines > most || size > lines*1000+2000 {
		t.Errorf("%d refusals wrote %d lines, %d bytes", requests, lines, size)
	}
	if events := int(r.bus.Last() - before); events > most {
		t.Errorf("%d refusals made %d events", requests, events)
	}
}
