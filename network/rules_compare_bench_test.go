package network

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// BenchmarkComparison measures one comparison of each of many switches that are as declared. cpu is
// the processor time of a comparison, with that of the fake switch, and share the part of one
// processor that 1,000 such switches take at the default interval. wire counts the bytes in both
// directions.
func BenchmarkComparison(b *testing.B) {
	for _, c := range []struct{ switches, rules int }{{1000, 10}, {1000, 100}, {50, 1000}} {
		b.Run(fmt.Sprintf("switches=%d/rules=%d", c.switches, c.rules), func(b *testing.B) { benchmarkComparison(b, c.switches, c.rules) })
	}
}

func benchmarkComparison(b *testing.B, switches, rules int) {
	n, err := New(Config{Listen: []string{"127.0.0.1:0"}, CompareInterval: -1, DisableForwarding: true, DiscoveryInterval: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	o, err := n.Owner("svc", OwnerOptions{})
	if err != nil {
		b.Fatal(err)
	}
	o.Ready()
	for d := range switches {
		var p Program
		for i := range rules {
			p.Rules = append(p.Rules, Rule{
				Switch: openflow.DatapathID(d + 1), Stage: rule.StageRewrite, Match: openflow.MustMatch(openflow.EthType(0x0800), openflow.IPProto(6), openflow.TCPDst(uint16(i+1))),
				Actions: []openflow.Action{openflow.SetField(openflow.EthDst(openflow.MAC{2})), openflow.Output(1)},
			})
		}
		if err := o.Apply(b.Context(), fmt.Sprint(d), p, ApplyOptions{AllowDown: true}); err != nil {
			b.Fatal(err)
		}
	}
	up := make(chan struct{}, 1)
	n.Subscribe(func(e Event) {
		if e.Kind == SwitchUp {
			up <- struct{}{}
		}
	})
	var wire atomic.Int64
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { _ = n.Run(ctx) })
	for d := range switches {
		s := fake.NewSwitch(fake.Options{DPID: openflow.DatapathID(d + 1), Ports: 4})
		conn, err := net.Dial("tcp", n.Addr()[0].String())
		if err != nil {
			b.Fatal(err)
		}
		wg.Go(func() { _ = s.Run(ctx, countedConn{conn, &wire}) })
		<-up
	}
	all := n.Switches()
	bytesBefore, before := wire.Load(), cpuTime(b)
	for i := 0; b.Loop(); i++ {
		if drift, err := all[i%switches].compare(ctx); err != nil || len(drift) > 0 {
			b.Fatal(drift, err)
		}
	}
	perComparison := (cpuTime(b) - before).Seconds() / float64(b.N)
	b.ReportMetric(perComparison*1e6, "cpu-µs/op")
	b.ReportMetric(100*perComparison*1000/30, "%share")
	b.ReportMetric(float64(wire.Load()-bytesBefore)/float64(b.N), "wire-B/op")
}

// countedConn counts the bytes in both directions.
type countedConn struct {
	net.Conn
	total *atomic.Int64
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.total.Add(int64(n))
	return n, err
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.total.Add(int64(n))
	return n, err
}

// BenchmarkRemovalNotice measures what a switch's notice costs that it has deleted a rule as it was
// told.
func BenchmarkRemovalNotice(b *testing.B) {
	n, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	o, err := n.Owner("svc", OwnerOptions{})
	if err != nil {
		b.Fatal(err)
	}
	ours, theirs := net.Pipe()
	defer func() { _, _ = ours.Close(), theirs.Close() }()
	s := newSwitch(n, ours)
	raw, err := (&openflow.FlowRemoved{
		Cookie: uint64(rule.MakeCookie(o.ledgerOwner.Hash, 1, 1)), Reason: openflow.RemovedDelete,
		Match: openflow.MustMatch(openflow.EthType(0x0800), openflow.IPProto(6), openflow.TCPDst(80)),
	}).AppendTo(nil, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		s.flowRemoved(raw)
	}
}

func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
