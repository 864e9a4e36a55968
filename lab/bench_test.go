package lab_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
)

// cpuTicks returns the CPU time that the delay line of a lab has used, in units of 10 ms.
func cpuTicks(b *testing.B, l *lab.Lab) int {
	b.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		b.Fatal(err)
	}
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(line), delayline.ProcessName+"\x00"+lab.DefaultRunDir+"/"+l.Name()+"/") {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(file), "stat"))
		if err != nil {
			b.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		user, err1 := strconv.Atoi(fields[11])
		system, err2 := strconv.Atoi(fields[12])
		if err1 != nil || err2 != nil {
			b.Fatal(err1, err2)
		}
		return user + system
	}
	b.Fatal("there is no delay line")
	return 0
}

// measureThroughput runs iperf3 for some seconds and reports the throughput of the link and the CPU time of the
// delay line.
func measureThroughput(b *testing.B, l *lab.Lab, from, to string, args ...string) {
	b.Helper()
	const seconds = 6
	for b.Loop() {
		server := l.Host(to).Command(b.Context(), "iperf3", "-s", "-1")
		if err := server.Start(); err != nil {
			b.Fatal(err)
		}
		deadline := time.Now().Add(5 * time.Second)
		for l.Host(to).Command(b.Context(), "sh", "-c", "ss -Hltn | grep -q 5201").Run() != nil && time.Now().Before(deadline) {
			continue // Starting a program is pause enough between attempts.
		}
		before, cpu := delivered(b, l), cpuTicks(b, l)
		all := append([]string{"-c", l.Host(to).Addr().String(), "-t", strconv.Itoa(seconds)}, args...)
		start := time.Now()
		if out, err := l.Host(from).Command(b.Context(), "iperf3", all...).CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		took := time.Since(start).Seconds()
		b.ReportMetric(float64(delivered(b, l)-before)*8/took/1e9, "Gbit/s")
		b.ReportMetric(float64(cpuTicks(b, l)-cpu)/100/took, "cores")
		_ = server.Wait()
	}
	b.ReportMetric(0, "ns/op")
}

func delivered(b *testing.B, l *lab.Lab) uint64 {
	b.Helper()
	st, err := l.Link("wan").Stats(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return st.AtoB.Stats.DeliveredBytes
}

// BenchmarkDelayLineBetweenHosts measures what is required: 1 Gbit/s at 100 ms round trip with less
// than half a core.
func BenchmarkDelayLineBetweenHosts(b *testing.B) {
	l := lab.New(b, pair(delayline.Params{Rate: 1e9, Delay: 50 * time.Millisecond}))
	measureThroughput(b, l, "h1", "h2", "-P", "16", "-C", "bbr")
}

// BenchmarkDelayLineUnlimited measures the highest throughput of the delay line between hosts.
func BenchmarkDelayLineUnlimited(b *testing.B) {
	l := lab.New(b, pair(delayline.Params{Delay: time.Millisecond}))
	measureThroughput(b, l, "h1", "h2", "-P", "4", "-C", "cubic")
}

// BenchmarkWAN measures the highest throughput of TCP over two switches and the long link between
// them.
func BenchmarkWAN(b *testing.B) {
	for name, o := range map[string]lab.WANOptions{
		"MTU1500": {MTU: 1500}, "MTU9000": {MTU: 9000}, "offload": {Offload: true},
	} {
		b.Run(name, func(b *testing.B) {
			o.Rate, o.RTT, o.Loss = 10e9, 20*time.Millisecond, -1
			l := lab.New(b, lab.WAN("bench", o))
			for _, name := range []string{"s1", "s2"} {
				if _, err := l.Switch(name).Ofctl(b.Context(), "add-flow", "actions=NORMAL"); err != nil {
					b.Fatal(err)
				}
			}
			measureThroughput(b, l, "client", "server", "-P", "4")
		})
	}
}

// BenchmarkUpDown builds the demo's network and removes it.
func BenchmarkUpDown(b *testing.B) {
	live.Test(b)
	for b.Loop() {
		l, err := lab.Up(b.Context(), lab.WAN("updown"+itoa(os.Getpid()), lab.WANOptions{}), lab.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Down(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
