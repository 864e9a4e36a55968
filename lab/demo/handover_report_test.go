package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
)

func TestSparkline(t *testing.T) {
	if got := sparkline([]float64{0, 1, 4, 8, 0.01}); got != " ▁▄█▁" {
		t.Errorf("got %q", got)
	}
	if got := sparkline([]float64{0, 0}); got != "  " {
		t.Errorf("of nothing %q", got)
	}
}

func TestRoamReport(t *testing.T) {
	good := roamResult{
		roamAct: roamAct{name: "vertical", policy: "seamless", lossless: true},
		udp:     testbed.StreamReport{Sent: 2000, Received: 2000, Gap: 1500 * time.Microsecond},
		tcp:     testbed.PullReport{Median: 48e6, Least: 47e6},
	}
	var out bytes.Buffer
	if err := printRoam(&out, []roamResult{good}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"vertical", "0 of 2000", "1.5 ms", "48.0 Mbit/s", "47.0 Mbit/s"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, out.String())
		}
	}
	if bad := roamFaults([]roamResult{good}); len(bad) != 0 {
		t.Errorf("faults of a good move: %v", bad)
	}
	for name, spoil := range map[string]func(*roamResult){
		"lost":   func(r *roamResult) { r.udp.Lost = 1 },
		"twice":  func(r *roamResult) { r.udp.Doubled = 1 },
		"reset":  func(r *roamResult) { r.resets = 1 },
		"wrong":  func(r *roamResult) { r.wrong = true },
		"arrive": func(r *roamResult) { r.udp.Received = 0 },
	} {
		bad := good
		spoil(&bad)
		if faults := roamFaults([]roamResult{bad}); len(faults) != 1 || !strings.Contains(faults[0], name) {
			t.Errorf("%s: faults %v", name, faults)
		}
	}
	saving := good
	saving.lossless, saving.udp.Lost = false, 30
	if bad := roamFaults([]roamResult{saving}); len(bad) != 0 {
		t.Errorf("a saving move may lose packets: %v", bad)
	}
}
