package plugin

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/handover/dhcp"
	"github.com/sluice-net/sluice/internal/logtest"
)

// A device whose requests are refused again and again, as those without a signature are
// of one that signs, fills neither the log nor what is remembered of events.
func TestRefusedRequestsFillNoLog(t *testing.T) {
	var out logtest.Log
	r := start(t, newWorld(treeLinks), newStore(t), nil, func(s *Service) { s.log = out.Logger() })
	before, began := r.bus.Last(), time.Now()
	const requests = 2000
	for range requests {
		r.tellVerdict(&dhcp.Decision{Verdict: dhcp.Denied, Reason: strings.Repeat("without a signature ", 1000)}, incoming{})
	}
	most := 10 + int(time.Since(began)/time.Second) + 1
	text := out.String()
	lines, size := strings.Count(text, "DHCP message refused"), len(text)
	if lines > most || size > lines*1000+2000 {
		t.Errorf("%d refusals wrote %d lines, %d bytes", requests, lines, size)
	}
	if events := int(r.bus.Last() - before); events > most {
		t.Errorf("%d refusals made %d events", requests, events)
	}
}
