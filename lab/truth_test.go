package lab_test

import (
	"context"
	"encoding/json"
	"math"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
)

// pair is two hosts and the link "wan" between them.
func pair(p delayline.Params) lab.Topology {
	l := lab.Both("h1", "h2", p)
	l.Name, l.Shaped = "wan", true
	return lab.Topology{Name: "pair", Hosts: []lab.Host{{Name: "h1", Congestion: "cubic"}, {Name: "h2", Congestion: "cubic"}}, Links: []lab.Link{l}}
}

var pingTime = regexp.MustCompile(`time=([0-9.]+) ms`)

// roundTrip is the median of pings, which one late wake-up of a busy machine does
// not move.
func roundTrip(t *testing.T, from, to *lab.LiveHost) time.Duration {
	t.Helper()
	out := output(t, from, "ping", "-c", "21", "-i", "0.03", "-W", "2", to.Addr().String())
	var times []float64
	for _, m := range pingTime.FindAllStringSubmatch(out, -1) {
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, v)
	}
	if len(times) < 15 {
		t.Fatalf("only %d answers:\n%s", len(times), out)
	}
	slices.Sort(times)
	return time.Duration(times[len(times)/2] * float64(time.Millisecond))
}

func TestRoundTripIsWhatWasAsked(t *testing.T) {
	l := lab.New(t, pair(delayline.Params{}))
	h1, h2 := l.Host("h1"), l.Host("h2")
	roundTrip(t, h1, h2) // ARP
	for _, delay := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond, 80 * time.Millisecond} {
		if err := l.SetLinkParams(testContext(t), "wan", delayline.Params{Delay: delay}); err != nil {
			t.Fatal(err)
		}
		got := roundTrip(t, h1, h2)
		t.Logf("asked %v, measured %v", 2*delay, got)
		if got < 2*delay-500*time.Microsecond || got > 2*delay+2*time.Millisecond {
			t.Errorf("asked for a round trip of %v, measured %v", 2*delay, got)
		}
	}
}

func TestDirectionsDiffer(t *testing.T) {
	l := lab.New(t, pair(delayline.Params{Delay: 5 * time.Millisecond}))
	h1, h2 := l.Host("h1"), l.Host("h2")
	roundTrip(t, h1, h2)
	if err := l.SetLinkDirections(testContext(t), "wan", nil, &delayline.Params{Delay: 35 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if got := roundTrip(t, h1, h2); got < 39*time.Millisecond || got > 42*time.Millisecond {
		t.Errorf("5 ms there and 35 ms back give %v", got)
	}
}

// flow is what iperf3 reports at its end.
type flow struct {
	sent, received float64 // bit/s
	packets, lost  int     // UDP
	retransmits    int     // TCP
}

func iperf(t *testing.T, from, to *lab.LiveHost, args ...string) flow {
	t.Helper()
	startServer(t, to, "iperf3", "-s", "-1", "--forceflush")
	out := output(t, from, "iperf3", append([]string{"-J", "-c", to.Addr().String()}, args...)...)
	var report struct {
		End struct {
			Sum     struct{ Packets, Lost_packets int } `json:"sum"` //nolint:revive // iperf3's names
			SumSent struct {
				Bits_per_second float64
				Retransmits     int
			} `json:"sum_sent"`
			SumReceived struct{ Bits_per_second float64 } `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v in:\n%s", err, out)
	}
	e := report.End
	return flow{e.SumSent.Bits_per_second, e.SumReceived.Bits_per_second, e.Sum.Packets, e.Sum.Lost_packets, e.SumSent.Retransmits}
}

// startServer runs a server on a host until the test ends, and returns when a
// TCP port is open there.
func startServer(t *testing.T, h *lab.LiveHost, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := h.Command(ctx, name, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	waitFor(t, name+" to listen", func() bool {
		out, err := h.Command(ctx, "ss", "-Hltn").Output()
		return err == nil && len(out) > 0
	})
}

// waitFor polls a condition.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		<-tick.C
	}
}

func needs(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
}

func TestRateIsWhatWasAsked(t *testing.T) {
	needs(t, "iperf3")
	const rate, size = 20e6, 1400
	l := lab.New(t, pair(delayline.Params{Rate: rate, Delay: 5 * time.Millisecond, Queue: 100_000}))
	got := iperf(t, l.Host("h1"), l.Host("h2"), "-u", "-w", "2M", "-b", "40M", "-l", strconv.Itoa(size), "-t", "3")
	want := rate * size / (size + 42) // UDP, IPv4 and Ethernet headers
	t.Logf("asked %.0f bit/s of payload, measured %.0f", want, got.received)
	if math.Abs(got.received-want) > want*0.05 {
		t.Errorf("measured %.0f bit/s of payload, want %.0f", got.received, want)
	}
	st, err := l.Link("wan").Stats(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if st.AtoB.Stats.Dropped == 0 || st.AtoB.Stats.QueueMax < 90_000 || st.AtoB.Stats.QueueMax > 100_000 {
		t.Errorf("twice the rate must fill the queue of 100 kB: %+v", st.AtoB.Stats)
	}
}

func TestTCPFillsTheLink(t *testing.T) {
	needs(t, "iperf3")
	const rate = 100e6
	l := lab.New(t, pair(delayline.Params{Rate: rate, Delay: 10 * time.Millisecond}))
	got := iperf(t, l.Host("h1"), l.Host("h2"), "-t", "4", "-O", "1", "-C", "cubic")
	want := rate * 1448 / 1514
	t.Logf("payload rate of the link %.0f bit/s, TCP carried %.0f", want, got.received)
	if got.received < want*0.85 || got.received > want*1.03 {
		t.Errorf("TCP carried %.0f bit/s, the link %.0f", got.received, want)
	}
}

func TestLossIsWhatWasAsked(t *testing.T) {
	needs(t, "iperf3")
	const loss = 0.01
	l := lab.New(t, pair(delayline.Params{Loss: loss}))
	h1, h2 := l.Host("h1"), l.Host("h2")
	// What arrives is counted at the interface: the program may be too late to read
	// it on a busy machine.
	arrived := received(t, h2)
	got := iperf(t, h1, h2, "-u", "-b", "50M", "-l", "1000", "-t", "3")
	arrived = received(t, h2) - arrived
	within(t, "UDP", got.packets, got.packets-arrived, loss)

	before, err := l.Link("wan").Stats(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	got = iperf(t, h1, h2, "-t", "3", "-C", "cubic")
	after, err := l.Link("wan").Stats(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	lost := int(after.AtoB.Stats.Lost - before.AtoB.Stats.Lost)
	within(t, "TCP", int(after.AtoB.Stats.ReceivedPackets-before.AtoB.Stats.ReceivedPackets), lost, loss)
	// The sender is the independent witness that what was counted was lost, once
	// for each MSS-sized packet.
	if ratio := float64(got.retransmits) / float64(lost); ratio < 0.9 || ratio > 1.4 {
		t.Errorf("the link lost %d packets, TCP sent %d again", lost, got.retransmits)
	}
}

// controlPackets is what iperf3's control connection adds to the counters.
const controlPackets = 30

// received is how many packets the kernel has taken in at a host's interface.
func received(t *testing.T, h *lab.LiveHost) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(output(t, h, "cat", "/sys/class/net/eth0/statistics/rx_packets")))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// within checks a number of losses against four standard deviations.
func within(t *testing.T, what string, packets, lost int, loss float64) {
	t.Helper()
	want := float64(packets) * loss
	t.Logf("%s: %d of %d lost, asked %.0f", what, lost, packets, want)
	if packets < 1000 || math.Abs(float64(lost)-want) > 4*math.Sqrt(want)+controlPackets {
		t.Errorf("%s: %d of %d packets lost, want about %.0f", what, lost, packets, want)
	}
}
