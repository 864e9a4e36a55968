package handover

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluice-net/sluice/internal/logtest"
	"github.com/sluice-net/sluice/services/handover/dhcp"
)

// A device whose requests are refused again and again, for example because it must sign and does
// not, fills neither the log nor the history of events.
func TestRefusedRequestsFillNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out logtest.Log
		r := start(t, newWorld(treeLinks), newStore(t), nil, func(s *Service) { s.log = out.Logger() })
		before := r.bus.Last()
		const requests, most = 2000, 11 // no time passes
		for range requests {
			r.packets.reportVerdict(&dhcp.Decision{Verdict: dhcp.Denied, Reason: strings.Repeat("without a signature ", 1000)}, incoming{})
		}
		text := out.String()
		lines, size := strings.Count(text, "DHCP message refused"), len(text)
		if lines > most || size > lines*1000+2000 {
			t.Errorf("%d refusals wrote %d lines, %d bytes", requests, lines, size)
		}
		if events := int(r.bus.Last() - before); events > most {
			t.Errorf("%d refusals made %d events", requests, events)
		}
	})
}
