package integration

import (
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/experiment/stage"
	"github.com/sluice-net/sluice/qos/bandwidth"
	"github.com/sluice-net/sluice/qos/match"
)

// What connections are promised is free as soon as they are closed, long before their
// rules have been silent for as long as they may.
func TestCriticalConnectionCloses(t *testing.T) {
	w := newCriticalWorld(t)
	spec := bandwidth.Spec{Name: "bulk", Rate: 10_000_000, Match: match.Flow{TCPDst: "5001"}, IdleTimeout: "1h"}
	if err := w.rest.Do(t.Context(), http.MethodPost, "/api/v1/qos/critical", spec, nil); err != nil {
		t.Fatal(err)
	}
	to := w.lab.Host("b1")
	for i := range 3 { // two ways of 15 Mbit/s have room for two
		_, err := stage.Bulk{From: w.lab.Host("a1"), To: to, Addr: netip.AddrPortFrom(to.Addr(), 5001), Bytes: 1 << 20}.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		w.eventually("nothing is promised", func() bool { return w.promised() == 0 })
		t.Logf("free %v after the end", time.Since(began))
		flows := w.flows()
		if len(flows) != i+1 {
			t.Fatalf("%d flows: %+v", len(flows), flows)
		}
		for _, f := range flows {
			if f.State != bandwidth.StateAccepted || !f.Closed {
				t.Errorf("%+v", f)
			}
		}
	}
	if rules, _ := w.ours(); len(rules) == 0 {
		t.Error("the rules have gone before they have been silent")
	}
}

// promised is what is promised on all links together.
func (w *criticalWorld) promised() (sum uint64) {
	for _, r := range w.reservations() {
		sum += r.Promised
	}
	return sum
}
