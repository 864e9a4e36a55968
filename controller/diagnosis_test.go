package controller

import (
	"net/http"
	"testing"
	"time"

	"github.com/sluice-net/sluice/controller/networkapi"
	"github.com/sluice-net/sluice/network/packet"
)

// TestDiagnosisThroughTheAPI checks that an operator can start an examination by the API, see that
// it runs, and read its findings.
func TestDiagnosisThroughTheAPI(t *testing.T) {
	cfg := testConfig(t, "memory")
	cfg.Network.Discovery.Interval, cfg.Network.Discovery.Timeout = 200*time.Millisecond, time.Second
	r := run(t, cfg)
	_, openFlow := r.Addr()
	w := newWired()
	w.noARP.Store(true)
	w.connect(t, openFlow[0])
	const path = "/api/v1/network/diagnosis"
	if status, _, text := r.ask(t, http.MethodGet, path, ""); status != http.StatusNotFound {
		t.Errorf("before the first: %d, %s", status, text)
	}
	for _, wrong := range []string{`{"mtu":575}`, `{"mtu":9217}`, `{"mtu":"much"}`, `{"size":1}`} {
		if status, _, text := r.ask(t, http.MethodPost, path, wrong); status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d, %s", wrong, status, text)
		}
	}
	var links []networkapi.Link
	eventually(t, "both directions of the link are found", func() bool { r.get(t, "/api/v1/network/links", &links); return len(links) == 2 })
	if status, _, text := r.ask(t, http.MethodPost, path, `{}`); status != http.StatusAccepted {
		t.Fatalf("the first: %d, %s", status, text)
	}
	if status, _, text := r.ask(t, http.MethodPost, path, `{}`); status != http.StatusConflict {
		t.Errorf("a second beside it: %d, %s", status, text)
	}
	var d networkapi.Diagnosis
	eventually(t, "the examination to end", func() bool { r.get(t, path, &d); return !d.Running })
	if d.Number != 1 || d.MTU != 1500 || d.Ended == nil || d.Links != 1 || d.MostFrames > 100 || len(d.Findings) != 2 {
		t.Fatalf("%+v", d)
	}
	for _, f := range d.Findings {
		if f.Fault != "kinds" || f.Level != "fail" || f.From == nil || f.To == nil || f.From.Port != 2 || f.Remedy == "" {
			t.Errorf("%+v", f)
		}
	}
}

// isARP reports whether a frame is ARP.
func isARP(frame []byte) bool {
	h, _ := packet.Parse(frame)
	return h.Has(packet.ARP)
}
