package network_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab/loadgen"
	"github.com/sluice-net/sluice/network"
)

// service stands for a service in the chain that looks at every packet.
type service struct{ seen int }

func (*service) Name() string { return "service" }

func (s *service) HandlePacketIn(p *network.PacketIn) network.Verdict {
	if p.Headers.IsSYN() {
		s.seen++
	}
	return network.Continue
}

// BenchmarkPacketIn loads the whole chain (discovery, hosts, a service,
// forwarding, ledger) from a process of its own. One iteration is one run of the
// generator; what counts are the metrics: CPU time of the controller for each
// packet-in, and answers per second. "one-core" runs the controller on one core.
func BenchmarkPacketIn(b *testing.B) {
	for _, c := range []struct {
		switches, hosts, window, cores int
	}{
		{1, 100, 1, 2},
		{1, 100, 512, 1},
		{16, 100, 128, 1},
		{16, 100, 128, 2},
		{16, 1000, 128, 1},
	} {
		b.Run(fmt.Sprintf("switches=%d/hosts=%d/window=%d/cores=%d", c.switches, c.hosts, c.window, c.cores), func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(c.cores))
			var sum loadgen.Measurement
			for range b.N {
				m := loaded(b, loadgen.Options{Switches: c.switches, Hosts: c.hosts, Window: c.window})
				sum.Answered += m.Answered
				sum.FlowMods += m.FlowMods
				sum.Elapsed += m.Elapsed
				sum.CPU += m.CPU
				sum.Latencies = m.Latencies
				if m.Reordered != 0 {
					b.Fatalf("%d answers came out of order", m.Reordered)
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(sum.PerSecond(), "answers/s")
			b.ReportMetric(float64(sum.CPUPerAnswer()), "cpu-ns/packet-in")
			b.ReportMetric(float64(sum.FlowMods)/float64(sum.Answered), "flow-mods/packet-in")
			b.ReportMetric(float64(sum.Latency(0.5))/1e3, "p50-us")
		})
	}
}

func loaded(b *testing.B, o loadgen.Options) loadgen.Measurement {
	b.Helper()
	n, err := network.New(network.Config{
		Listen: []string{"127.0.0.1:0"}, DiscoverySettle: 200 * time.Millisecond, DiscoveryInterval: time.Second,
	})
	if err != nil {
		b.Fatal(err)
	}
	n.AddHandler(100, &service{})
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}()
	o.Address = n.Addr()[0].String()
	o.Settle = 700 * time.Millisecond
	o.Warmup, o.Duration = 500*time.Millisecond, 2*time.Second
	m, err := loadgen.Measure(ctx, o, loadgen.OwnCPU)
	if err != nil {
		b.Fatal(err)
	}
	return m
}
