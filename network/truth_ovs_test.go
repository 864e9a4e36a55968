//go:build !race

package network_test

import (
	"math"
	"net"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/openflow"
)

// The measurements of links are compared with what the lab does to them. Not under
// the race detector, which makes a controller slower than what it measures.
const (
	// Latency is within the larger of the two.
	latencyBound = 500 * time.Microsecond
	latencyShare = 0.05
	// utilisationShare is how far off a link's use may be, in each interval.
	utilisationShare = 0.03
	// lossFactor is how many times too large or too small a loss may be.
	lossFactor = 1.3
)

// truthTopology is a ring of four switches: links of 1, 5 and 20 ms and one of 3 ms
// there and 12 ms back; connections to the controller of 0, 5 and 20 ms.
func truthTopology(loss float64) lab.Topology {
	line := func(d time.Duration) delayline.Params { return delayline.Params{Delay: d} }
	t := lab.Topology{
		Name: "nettruth",
		Switches: []lab.Switch{
			{Name: "s1"},
			{Name: "s2", ControlDelay: 5 * time.Millisecond},
			{Name: "s3", ControlDelay: 20 * time.Millisecond},
			{Name: "s4"},
		},
		Hosts: []lab.Host{{Name: "h1"}, {Name: "h2"}},
		Links: []lab.Link{
			lab.Both("h1", "s1", delayline.Params{}), lab.Both("h2", "s2", delayline.Params{}),
			lab.Both("s1", "s2", line(time.Millisecond)), lab.Both("s2", "s3", line(5*time.Millisecond)),
			lab.Both("s3", "s4", line(20*time.Millisecond)), lab.Both("s4", "s1", line(3*time.Millisecond)),
		},
	}
	t.Links[2].AtoB.Loss = loss
	t.Links[5].BtoA.Delay = 12 * time.Millisecond
	for i := range t.Links {
		t.Links[i].Name = t.Links[i].A.Node + "-" + t.Links[i].B.Node
	}
	return t
}

// TestMeasurementsAreTrue is point 5 of what makes measuring good: latency, use and
// loss of links are those of the lab.
func TestMeasurementsAreTrue(t *testing.T) {
	const (
		loss     = 0.001
		rate     = 8000 // packets per second
		duration = 26 * time.Second
		interval = 2 * time.Second
	)
	l := lab.New(t, truthTopology(loss))
	n, _ := run(t, l, network.Config{StatsInterval: interval})
	ready(t, n, 4, 4, 2)
	ping(t, l, "h1", "h2")
	t.Run("latency", func(t *testing.T) { latenciesAreTrue(t, l, n) })

	link := l.Link("s1-s2")
	truth := watch(t, func() (delayline.Stats, error) {
		st, err := link.Stats(t.Context())
		return st.AtoB.Stats, err
	})
	from := place(t, l, "s1", "s1-s2")
	busy := watchMachine(t)
	began := time.Now()
	sent := flood(t, l.Host("h1"), l.Host("h2"), rate, duration)
	ended := time.Now()
	eventually(t, "the link to be read after the end", func() bool {
		p := lastPoint(n, from)
		return p.At.Add(-p.Interval).After(ended)
	})
	truth.end()
	t.Run("use", func(t *testing.T) {
		busy.wantTruth(t)
		seen := 0
		for _, track := range n.Traffic().LinkHistory(from, began) {
			for _, p := range track.Points {
				if p.At.Add(-p.Interval).Before(began) || p.At.After(ended) {
					continue
				}
				bytes := truth.between(p.At.Add(-p.Interval), p.At, func(s delayline.Stats) uint64 { return s.ReceivedBytes })
				want := 8 * bytes / p.Interval.Seconds()
				off := float64(p.Used)/want - 1
				seen++
				t.Logf("the lab carried %.0f bit/s, measured are %d: %+.2f %%", want, p.Used, 100*off)
				if !(math.Abs(off) <= utilisationShare) {
					t.Errorf("use is off by %+.2f %%", 100*off)
				}
			}
		}
		if seen < int(duration/interval)/2 {
			t.Errorf("%d points in %v", seen, duration)
		}
	})
	t.Run("loss", func(t *testing.T) {
		busy.wantTruth(t)
		first, last := truth.of[0], truth.of[len(truth.of)-1]
		in, lost := float64(last.ReceivedPackets-first.ReceivedPackets), float64(last.Lost-first.Lost)
		want, got := lost/in, lastPoint(n, from).Loss
		t.Logf("of %d packets sent the lab lost %.0f of %.0f, %.4f %% (asked %.1f %%); measured are %.4f %%", sent, lost, in, 100*want, 100*loss, 100*got)
		for _, w := range []float64{want, loss} {
			if !(got < w*lossFactor && got > w/lossFactor) {
				t.Errorf("loss %.4f %%, want %.4f %%", 100*got, 100*w)
			}
		}
	})
	t.Run("latency after load", func(t *testing.T) { latenciesAreTrue(t, l, n) })
}

// keepAwake has every processor do something that yields to all else, until the test
// ends. To wake one that sleeps can take a virtual machine a quarter of a millisecond,
// and a probe wakes two switches: that is no latency of a link.
func keepAwake(t *testing.T) {
	t.Helper()
	for range runtime.NumCPU() {
		idle := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
		idle.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
		if err := idle.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = idle.Wait() }) // killed with the test's context
		if err := unix.SchedSetAttr(idle.Process.Pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// place is the switch port where a link of the lab begins.
func place(t *testing.T, l *lab.Lab, sw, link string) network.PortRef {
	t.Helper()
	port, err := l.Switch(sw).Port(link)
	if err != nil {
		t.Fatal(err)
	}
	return network.PortRef{Switch: openflow.DatapathID(l.Switch(sw).DPID()), Port: uint32(port)}
}

func lastPoint(n *network.Network, from network.PortRef) (p stats.Point) {
	for _, track := range n.Traffic().LinkHistory(from, time.Time{}) {
		p = track.Points[len(track.Points)-1]
	}
	return p
}

// latenciesAreTrue compares the latency of every directed link with the lab's: once
// it has settled, each of many readings.
func latenciesAreTrue(t *testing.T, l *lab.Lab, n *network.Network) {
	keepAwake(t)
	want := map[network.PortRef]time.Duration{}
	for _, k := range l.Topology().Links[2:] {
		want[place(t, l, k.A.Node, k.Name)] = k.AtoB.Delay
		want[place(t, l, k.B.Node, k.Name)] = k.BtoA.Delay
	}
	busy := watchMachine(t)
	// A probe passes through programs, which are late as work is.
	bound := func(w time.Duration) time.Duration {
		return time.Duration(busy.stretch() * float64(max(latencyBound, time.Duration(latencyShare*float64(w)))))
	}
	settled := time.Time{}
	eventually(t, "latencies to settle", func() bool {
		for _, k := range n.Topology().Links {
			if (k.Latency - want[k.From]).Abs() > bound(want[k.From]) {
				settled = time.Time{}
				return false
			}
		}
		if settled.IsZero() {
			settled = time.Now()
		}
		return time.Since(settled) > 3*time.Second
	})
	worst := map[network.PortRef]time.Duration{}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for range 20 {
		<-tick.C
		for _, k := range n.Topology().Links {
			if off := k.Latency - want[k.From]; off.Abs() >= worst[k.From].Abs() {
				worst[k.From] = off
			}
		}
	}
	busy.end()
	t.Logf("work took %.2f times as long as it should", busy.stretch())
	for _, k := range n.Topology().Links {
		t.Logf("%v to %v: the lab's latency is %v, measured is %v (jitter %v), at worst off by %v",
			k.From, k.To, want[k.From], k.Latency, k.Jitter, worst[k.From])
		if worst[k.From].Abs() > bound(want[k.From]) {
			t.Errorf("latency from %v is off by %v", k.From, worst[k.From])
		}
	}
}

// readings are counters of the lab at times.
type readings struct {
	end func()
	at  []time.Time
	of  []delayline.Stats
}

// watch reads counters many times a second until end is called.
func watch(t *testing.T, read func() (delayline.Stats, error)) *readings {
	r := &readings{}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	r.end = sync.OnceFunc(func() { close(stop); wg.Wait() })
	t.Cleanup(r.end)
	add := func() error {
		asked := time.Now()
		s, err := read()
		if err == nil {
			r.at, r.of = append(r.at, asked.Add(time.Since(asked)/2)), append(r.of, s)
		}
		return err
	}
	if err := add(); err != nil { // the first before anything is compared with it
		t.Fatal(err)
	}
	wg.Go(func() {
		tick := time.NewTicker(25 * time.Millisecond)
		defer tick.Stop()
		for ended := false; !ended; {
			select {
			case <-stop:
				ended = true
			case <-tick.C:
			}
			if err := add(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	return r
}

// between is by how much a counter has grown from one time to another.
func (r *readings) between(from, to time.Time, counter func(delayline.Stats) uint64) float64 {
	return r.value(to, counter) - r.value(from, counter)
}

func (r *readings) value(t time.Time, counter func(delayline.Stats) uint64) float64 {
	for i := 1; i < len(r.at); i++ {
		if a, b := r.at[i-1], r.at[i]; !t.Before(a) && !t.After(b) {
			x, y := float64(counter(r.of[i-1])), float64(counter(r.of[i]))
			return x + (y-x)*float64(t.Sub(a))/float64(b.Sub(a))
		}
	}
	return math.NaN()
}

// flood sends small datagrams at a steady rate, and returns how many.
func flood(t *testing.T, from, to *lab.LiveHost, rate int, duration time.Duration) int {
	t.Helper()
	var sink, source net.Conn
	addr := net.JoinHostPort(to.Addr().String(), "9999")
	err := to.Do(func() error {
		at, err := net.ResolveUDPAddr("udp", addr)
		if err == nil {
			sink, err = net.ListenUDP("udp", at) // nobody reads: what counts are the ports
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	if err := from.Do(func() (err error) { source, err = net.Dial("udp", addr); return err }); err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	datagram := make([]byte, 200)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	sent := 0
	for began := time.Now(); ; <-tick.C {
		passed := time.Since(began)
		for ; sent < int(passed.Seconds()*float64(rate)); sent++ {
			if _, err := source.Write(datagram); err != nil {
				t.Fatal(err)
			}
		}
		if passed >= duration {
			return sent
		}
	}
}
