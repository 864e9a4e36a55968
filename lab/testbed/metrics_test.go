package testbed

import (
	"strings"
	"testing"
)

func TestMetricsAreRead(t *testing.T) {
	m, err := parseMetrics(strings.NewReader("# HELP a Words.\n# TYPE a counter\na{way=\"up and down\"} 3\na{way=\"down\"} 1e+03\n\nab 7\n"))
	if err != nil {
		t.Fatal(err)
	}
	if n := m.SumOf("a", "way", "down"); n != 1000 {
		t.Errorf("of one label: %v", n)
	}
	if m.Sum("a") != 1003 || m.Sum("ab") != 7 || m.Sum("none") != 0 || m[`a{way="up and down"}`] != 3 {
		t.Errorf("%v", m)
	}
	for _, bad := range []string{"alone", "a b"} {
		if _, err := parseMetrics(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
