package integration

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/experiment/stage"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/qos/latency"
	"github.com/sluice-net/sluice/qos/match"
)

// line is three switches in a row with two hosts at each end.
func line() lab.Topology {
	t := lab.Line("qline", 3, delayline.Params{})
	t.Hosts = append(t.Hosts, lab.Host{Name: "x1"}, lab.Host{Name: "x3"})
	t.Links = append(t.Links, lab.Link{A: lab.End{Node: "x1"}, B: lab.End{Node: "s1"}}, lab.Link{A: lab.End{Node: "x3"}, B: lab.End{Node: "s3"}})
	return t
}

// A class's messages do not wait behind a flood on three switches in a row.
func TestClassUnderFlood(t *testing.T) {
	c := newClasses(t, line(), true)
	port := uint16(5001)
	spec := latency.ClassSpec{Name: "control", MinRate: "1000000", Latency: "150", Priority: "0", Flows: []match.Flow{
		{IPv4Src: text(c.addr("h1")), IPv4Dst: text(c.addr("h3")), TCPDst: text(port)},
		{IPv4Src: text(c.addr("h3")), IPv4Dst: text(c.addr("h1")), TCPSrc: text(port)},
	}}
	c.add(spec)
	flood, err := stage.Flood{From: c.lab.Host("x1"), To: c.lab.Host("x3"), Dst: netip.AddrPortFrom(c.addr("x3"), 6000), Rate: 14e6, Bytes: 1400}.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer flood.Stop()
	dialogue := stage.Dialogue{
		Client: c.lab.Host("h1"), Server: c.lab.Host("h3"), To: netip.AddrPortFrom(c.addr("h3"), port), Interval: 10 * time.Millisecond, For: 4 * time.Second, Bytes: 64,
	}
	with, err := dialogue.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.delete("control")
	dialogue.For = 2 * time.Second
	without, err := dialogue.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(with)
	slices.Sort(without)
	t.Logf("with: p50 %v p99 %v max %v of %d; without: p50 %v", quantile(with, 0.5), quantile(with, 0.99), quantile(with, 1), len(with), quantile(without, 0.5))
	if quantile(with, 0.5) > 4*time.Millisecond || quantile(with, 0.5) > quantile(without, 0.5)/4 {
		t.Errorf("with the class p50 is %v, without %v", quantile(with, 0.5), quantile(without, 0.5))
	}
}

// quantile of sorted values.
func quantile(v []time.Duration, q float64) time.Duration {
	return v[min(int(q*float64(len(v))), len(v)-1)]
}
