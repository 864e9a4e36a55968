package lab_test

import (
	"context"
	"encoding/json"
	"math"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	received    float64 // bit/s
	retransmits int     // TCP
}

func iperf(t *testing.T, from, to *lab.LiveHost, args ...string) flow {
	t.Helper()
	defer startServer(t, to, "iperf3", "-s", "-1")()
	out := output(t, from, "iperf3", append([]string{"-J", "-c", to.Addr().String()}, args...)...)
	var report struct {
		Error string
		End   struct {
			Sent     struct{ Retransmits int } `json:"sum_sent"`
			Received struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v in:\n%s", err, out)
	}
	if report.Error != "" {
		t.Fatal(report.Error)
	}
	return flow{report.End.Received.Rate, report.End.Sent.Retransmits}
}

// startServer runs a server on a host and returns when a TCP port is open there.
// The function it returns ends the server.
func startServer(t *testing.T, h *lab.LiveHost, name string, args ...string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := h.Command(ctx, name, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() { cancel(); _ = cmd.Wait() })
	t.Cleanup(stop)
	waitFor(t, name+" to listen", func() bool {
		out, err := h.Command(ctx, "ss", "-Hltn").Output()
		return err == nil && len(out) > 0
	})
	return stop
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
	want := rate * size / (size + 42.0) // UDP, IPv4 and Ethernet headers
	fills(t, want, 0.95, func() float64 {
		return iperf(t, l.Host("h1"), l.Host("h2"), "-u", "-w", "400K", "-b", "40M", "-l", strconv.Itoa(size), "-t", "3").received
	})
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
	fills(t, rate*1448/1514.0, 0.85, func() float64 {
		return iperf(t, l.Host("h1"), l.Host("h2"), "-P", "8", "-t", "4", "-O", "1", "-C", "cubic").received
	})
}

// fills checks that a link carries the payload that it should, in bit/s. That it
// carries no more must always hold; that it carries a share of it may take some
// more runs on a busy machine.
func fills(t *testing.T, want, share float64, run func() float64) {
	t.Helper()
	best := 0.0
	for range 6 {
		got := run()
		t.Logf("the link should carry %.0f bit/s of payload, measured %.0f", want, got)
		if got > want*1.03 {
			t.Errorf("carried %.0f bit/s over a link of %.0f", got, want)
		}
		if best = max(best, got); best > want*share {
			return
		}
	}
	t.Errorf("carried %.0f bit/s at best, the link %.0f", best, want)
}

func TestLossIsWhatWasAsked(t *testing.T) {
	needs(t, "iperf3")
	const loss = 0.01
	l := lab.New(t, pair(delayline.Params{Loss: loss}))
	h1, h2 := l.Host("h1"), l.Host("h2")
	// The link may lose the request for the other's address, and what waits for the
	// answer would fill the kernel's queue and be dropped in front of the link.
	waitFor(t, "the hosts to know each other", func() bool { return pings(t, h1, h2.Addr().String()) })
	// What arrives is counted at the interface: a program may be too late to read
	// it on a busy machine.
	arrived := received(t, h2)
	sent := sendDatagrams(t, h1, h2)
	waitFor(t, "the link to run empty", func() bool {
		st, err := l.Link("wan").Stats(testContext(t))
		return err == nil && st.AtoB.Stats.FlightBytes == 0 && st.AtoB.Stats.ReceivedPackets >= uint64(sent)
	})
	within(t, "UDP", sent, sent-(received(t, h2)-arrived), loss)

	before, err := l.Link("wan").Stats(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	got := iperf(t, h1, h2, "-t", "3", "-C", "cubic")
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

// sendDatagrams sends 20,000 datagrams in small bursts and returns the number.
func sendDatagrams(t *testing.T, from, to *lab.LiveHost) int {
	t.Helper()
	var sink, source net.Conn
	addr := net.JoinHostPort(to.Addr().String(), "9999")
	err := to.Do(func() (err error) {
		at, err := net.ResolveUDPAddr("udp", addr)
		if err == nil {
			sink, err = net.ListenUDP("udp", at)
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
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	const bursts, burst = 400, 50
	for range bursts {
		for range burst {
			if _, err := source.Write(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
		}
		<-tick.C
	}
	return bursts * burst
}

// otherPackets is what else may arrive meanwhile: ARP and neighbour discovery.
const otherPackets = 20

// received is how many packets the kernel has taken in at a host's interface.
func received(t *testing.T, h *lab.LiveHost) int {
	t.Helper()
	_, counters, _ := strings.Cut(output(t, h, "cat", "/proc/net/dev"), "eth0:")
	n, err := strconv.Atoi(strings.Fields(counters)[1])
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
	if packets < 1000 || math.Abs(float64(lost)-want) > 4*math.Sqrt(want)+otherPackets {
		t.Errorf("%s: %d of %d packets lost, want about %.0f", what, lost, packets, want)
	}
}
