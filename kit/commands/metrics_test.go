package commands

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/kit"
)

// TestMetricsServer checks that metrics are served if requested, on this machine only, until the
// daemon ends.
func TestMetricsServer(t *testing.T) {
	f := MetricsServer{addr: "127.0.0.1:0"}
	if err := f.Open(); err != nil {
		t.Fatal(err)
	}
	m := kit.NewMetrics("test")
	m.Counter("chunks_total", "Chunks.").Add(7)
	stop := f.Serve(m, slog.New(slog.DiscardHandler))
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
	if line := "sluice_test_chunks_total 7\n"; !strings.Contains(string(text), line) {
		t.Errorf("%s is not in %s", line, text)
	}
	http.DefaultClient.CloseIdleConnections()
	stop()
	if answer, err := http.Get(url); err == nil {
		_ = answer.Body.Close()
		t.Error("shown after the end")
	}
	for _, at := range []string{"192.0.2.1:9411", "0.0.0.0:9411", "9411", "127.0.0.1"} {
		if err := (&MetricsServer{addr: at}).Open(); err == nil || !strings.Contains(err.Error(), "loopback") {
			t.Errorf("%s: %v", at, err)
		}
	}
	none := MetricsServer{}
	if err := none.Open(); err != nil {
		t.Error(err)
	}
	none.Serve(nil, nil)()
}
