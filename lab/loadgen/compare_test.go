package loadgen_test

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/lab/loadgen"
)

func TestMain(m *testing.M) {
	loadgen.Child()
	goleak.VerifyTestMain(m)
}

// TestCompareMeasuresEachController checks that every controller answers every packet, in order.
func TestCompareMeasuresEachController(t *testing.T) {
	all, err := loadgen.Compare(t.Context(), loadgen.CompareOptions{
		Python: os.Getenv("SLUICE_OSKEN_PYTHON"),
		Load:   loadgen.Options{Switches: 2, Hosts: 20, Window: 16, Settle: time.Second, Warmup: 100 * time.Millisecond, Duration: 2 * time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.LeftOut != nil {
			t.Logf("%s: left out: %v", c.Name, c.LeftOut)
			if c.Name == "sluice" {
				t.Error("our own controller was left out")
			}
			continue
		}
		t.Logf("%s: %v", c.Name, &c.Result)
		if c.Answered == 0 || c.Reordered != 0 || c.Latency(0.5) <= 0 {
			t.Errorf("%s: %v", c.Name, &c.Result)
		}
	}
}

// BenchmarkCompare runs ovs-testcontroller and, if SLUICE_OSKEN_PYTHON names a
// Python that has it, os-ken beside this controller.
func BenchmarkCompare(b *testing.B) {
	for _, c := range []struct {
		name             string
		switches, window int
	}{{"latency", 1, 1}, {"throughput", 16, 128}} {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				all, err := loadgen.Compare(b.Context(), loadgen.CompareOptions{
					Python: os.Getenv("SLUICE_OSKEN_PYTHON"),
					Load:   loadgen.Options{Switches: c.switches, Window: c.window, Settle: time.Second},
				})
				if err != nil {
					b.Fatal(err)
				}
				if err := loadgen.WriteTable(os.Stdout, all); err != nil {
					b.Fatal(err)
				}
				for i := range all {
					if all[i].LeftOut == nil {
						b.ReportMetric(all[i].PerSecond(), all[i].Name+"/s")
						b.ReportMetric(float64(all[i].CPUPerAnswer()), all[i].Name+"-cpu-ns")
					}
				}
			}
		})
	}
}
