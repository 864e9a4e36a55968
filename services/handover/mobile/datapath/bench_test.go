package datapath_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkDatapath measures TCP throughput both ways, what it costs in CPU of
// the whole machine (both ends, the network between, and whatever else runs, so
// it wants a quiet one), the round trip of a small datagram, and the time that a
// switch takes. Bare veth, without a VNI, is what there would be without a
// datapath.
//
//	go test -run '^$' -bench Datapath ./services/handover/mobile/datapath/...
func BenchmarkDatapath(b *testing.B) {
	for _, name := range []string{"veth", "ebpf"} {
		b.Run(name, func(b *testing.B) {
			a := newAccess(b, false)
			dev := wifi
			var dp *within
			if name == "ebpf" {
				dev = vni
				dp = a.opened(b, a.config())
				dp.use(wifi, wifi)
			}
			a.address(b, dev, ownNet, peer4, serverMAC)
			b.Run("up", func(b *testing.B) { a.benchTCP(b) })
			b.Run("down", func(b *testing.B) { a.benchTCP(b, "-R") })
			b.Run("roundtrip", a.benchRoundTrip)
			if dp != nil {
				b.Run("switch", dp.benchSwitch)
			}
		})
	}
}

// benchTCP sends 64 MB in each iteration.
func (a *access) benchTCP(b *testing.B, args ...string) {
	const turn = 64 << 20
	client := a.startIperf(b, append(args, "-C", "reno", "-n", strconv.Itoa(b.N*turn))...)
	before := busy(b)
	b.ResetTimer()
	var out []byte
	err := a.do(func() (err error) {
		out, err = client.Output()
		return err
	})
	b.StopTimer()
	used := busy(b) - before
	var r iperf
	if err != nil || json.Unmarshal(out, &r) != nil || r.Error != "" {
		b.Fatalf("iperf3: %v\n%s", err, out)
	}
	b.ReportMetric(r.End.SumReceived.Bits/1e9, "Gbit/s")
	b.ReportMetric(used.Seconds()/(float64(b.N)*turn/1e9), "CPU-s/GB")
	b.ReportMetric(float64(r.End.SumSent.Retransmits), "retrans")
	b.ReportMetric(0, "ns/op")
}

// benchSwitch changes the interface, back and forth.
func (w *within) benchSwitch(b *testing.B) {
	err := w.space.do(func() error {
		at, next := wifi, lte
		for b.Loop() {
			if err := w.inner.Use(b.Context(), next, []string{next}); err != nil {
				return err
			}
			at, next = next, at
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

// busy returns the time that all processors together were not idle.
func busy(b *testing.B) time.Duration {
	b.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		b.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	var ticks time.Duration
	for i, f := range strings.Fields(first)[1:9] { // user nice system idle iowait irq softirq steal
		n, err := strconv.Atoi(f)
		if err != nil {
			b.Fatal(fmt.Errorf("/proc/stat: %w", err))
		}
		if i != 3 && i != 4 {
			ticks += time.Duration(n)
		}
	}
	return ticks * time.Second / 100 // USER_HZ
}

// benchRoundTrip sends a datagram back and forth.
func (a *access) benchRoundTrip(b *testing.B) {
	open := func(s *space, at netip.Addr) (c *net.UDPConn) {
		s.must(b, func() (err error) {
			c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 7003)))
			return err
		})
		b.Cleanup(func() { _ = c.Close() })
		return c
	}
	device, server := open(a.space, own4), open(a.server, peer4)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 100)
		for {
			n, from, err := server.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	b.Cleanup(func() { _ = server.Close(); <-done })
	buf, to := make([]byte, 64), netip.AddrPortFrom(peer4, 7003)
	if err := device.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for range b.N {
		if _, err := device.WriteToUDPAddrPort(buf, to); err != nil {
			b.Fatal(err)
		}
		if _, err := device.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
}
