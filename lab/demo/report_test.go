package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/lab/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestProgressLine(t *testing.T) {
	var plain, moving bytes.Buffer
	p := progress{out: &plain, label: "direct", total: 100e6}
	p.update(50e6)
	if plain.Len() != 0 {
		t.Errorf("without a terminal a moving bar was written: %q", plain.String())
	}
	p.finish(100e6, 10*time.Second)
	if got := plain.String(); !strings.Contains(got, strings.Repeat("#", barWidth)) || !strings.Contains(got, "80.0 Mbit/s") || strings.Contains(got, "\x1b") {
		t.Errorf("the final line is %q", got)
	}
	p = progress{out: &moving, tty: true, label: "direct", total: 100e6, started: time.Now()}
	p.update(50e6)
	if got := moving.String(); !strings.Contains(got, strings.Repeat("#", barWidth/2)+".") {
		t.Errorf("half way the bar is %q", got)
	}
	if got := (&progress{total: 0}).line(5, 0); !strings.Contains(got, "0.0 Mbit/s") {
		t.Errorf("before anything is known the bar is %q", got)
	}
}

func TestFaults(t *testing.T) {
	good := outcome{
		name:     "SOS",
		download: testbed.Download{Local: "10.0.0.1:5000", Remote: "10.0.0.2:80", Total: time.Second, Bytes: 1e6},
		access:   testbed.Access{Remote: "10.0.0.1:5000", Local: "10.0.0.2:80"},
		same:     true,
	}
	if got := faults([]outcome{good}); len(got) != 0 {
		t.Errorf("a good outcome has faults: %q", got)
	}
	changed, seen, dialled := good, good, good
	changed.same = false
	seen.access.Remote = "10.0.0.3:5000"
	dialled.download.Remote = "10.0.0.4:80"
	for want, bad := range map[string]outcome{
		"arrived changed":              changed,
		"the server saw 10.0.0.3:5000": seen,
		"client talked to 10.0.0.4:80": dialled,
	} {
		if got := faults([]outcome{bad}); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("faults %q, want %q", got, want)
		}
	}
	var out bytes.Buffer
	if err := printReport(&out, 300e6, []outcome{good, changed}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"8.0 Mbit/s", "DIFFERENT", "3 %", "10.0.0.1:5000"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}
