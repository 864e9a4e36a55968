package network_test

import (
	"encoding/json"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/openflow"
)

// pairsOfRuns is how many pairs of measurements the benchmark takes.
const pairsOfRuns = 8

// BenchmarkTablesOfOpenVSwitch compares what one bridge carries by three tables with what
// another carries by one, in turns, so that both see the machine alike.
func BenchmarkTablesOfOpenVSwitch(b *testing.B) {
	rates := map[string]float64{}
	var ratios []float64
	for b.Loop() {
		t := lab.Topology{Name: "benchtables"}
		for _, s := range []lab.Switch{{Name: "three"}, {Name: "one", Tables: 1}} {
			t.Switches = append(t.Switches, s)
			for _, h := range []string{"a", "b"} {
				t.Hosts = append(t.Hosts, lab.Host{Name: h + s.Name})
				t.Links = append(t.Links, lab.Both(h+s.Name, s.Name, delayline.Params{}))
			}
		}
		l := lab.New(b, t)
		n, stop := run(b, l, network.Config{Log: slog.New(slog.DiscardHandler)})
		networktest.Eventually(b, "both switches", func() bool { return len(n.Switches()) == 2 })
		for i := range pairsOfRuns {
			order := []string{"three", "one"}
			if i%2 == 1 {
				slices.Reverse(order)
			}
			now := map[string]float64{}
			for _, s := range order {
				now[s] = iperf(b, l, "a"+s, "b"+s)
				rates[s] += now[s] / pairsOfRuns
			}
			ratios = append(ratios, now["three"]/now["one"])
		}
		for name, want := range map[string]bool{"three": true, "one": false} {
			if s, ok := n.Switch(openflow.DatapathID(l.Switch(name).DPID())); !ok || s.Layout().Tables() != want {
				b.Fatalf("%s has tables: %v", name, !want)
			}
		}
		stop()
	}
	slices.Sort(ratios)
	b.ReportMetric(rates["three"]/1e6/float64(b.N), "Mbit/s-three")
	b.ReportMetric(rates["one"]/1e6/float64(b.N), "Mbit/s-one")
	b.ReportMetric(ratios[len(ratios)/2], "median-ratio")
	b.ReportMetric(ratios[0], "lowest-ratio")
	b.ReportMetric(ratios[len(ratios)-1], "highest-ratio")
}

// iperf measures TCP between two hosts for two seconds, in bit/s.
func iperf(b *testing.B, l *lab.Lab, from, to string) float64 {
	b.Helper()
	server := l.Host(to).Command(b.Context(), "iperf3", "-s", "-1")
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = server.Wait() }()
	deadline := time.Now().Add(networktest.Timeout)
	for l.Host(to).Command(b.Context(), "sh", "-c", "ss -Hltn | grep -q 5201").Run() != nil && time.Now().Before(deadline) {
		continue // each round starts a program: that is pause enough
	}
	out, err := l.Host(from).Command(b.Context(), "iperf3", "-c", l.Host(to).Addr().String(), "-t", "2", "-J").Output()
	if err != nil {
		b.Fatal(err)
	}
	var r struct {
		End struct {
			Received struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return r.End.Received.Rate
}
