package cli

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// Metrics are served if requested, on this machine only, until the daemon ends.
func TestFigures(t *testing.T) {
	f := metricsServer{addr: "127.0.0.1:0"}
	if err := f.open(); err != nil {
		t.Fatal(err)
	}
	stop := f.serve(newMetrics("mf_test", []total{{"chunks_total", "Chunks.", func() map[string]uint64 { return map[string]uint64{"taken": 7} }}},
		[]gauge{{"names", "Names.", func() float64 { return 3 }}}), slog.New(slog.DiscardHandler))
	url := "http://" + f.listen.Addr().String() + "/metrics"
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	for _, line := range []string{`sluice_mf_test_chunks_total{outcome="taken"} 7`, "sluice_mf_test_names 3"} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("%s is not in %s", line, text)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	stop()
	if answer, err := http.Get(url); err == nil {
		_ = answer.Body.Close()
		t.Error("shown after the end")
	}
	for _, at := range []string{"192.0.2.1:9411", "0.0.0.0:9411", "9411", "127.0.0.1"} {
		if err := (&metricsServer{addr: at}).open(); err == nil || !strings.Contains(err.Error(), "loopback") {
			t.Errorf("%s: %v", at, err)
		}
	}
	none := metricsServer{}
	if err := none.open(); err != nil {
		t.Error(err)
	}
	none.serve(nil, nil)()
}
