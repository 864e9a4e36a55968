package lab_test

import (
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
)

// pair returns two hosts and the link "wan" between them.
func pair(p delayline.Params) lab.Topology {
	l := lab.Both("h1", "h2", p)
	l.Name, l.Shaped = "wan", true
	return lab.Topology{Name: "pair", Hosts: []lab.Host{{Name: "h1", Congestion: "cubic"}, {Name: "h2", Congestion: "cubic"}}, Links: []lab.Link{l}}
}

var pingTime = regexp.MustCompile(`time=([0-9.]+) ms`)

// roundTrip returns the median of several pings, which one late wake-up of a busy machine does not
// change.
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

// TestDelayIsWhatWasAsked checks that a packet takes no less than the delay of each direction of a
// link, and that a delay that is removed no longer applies. That a packet takes no more is tested
// with a fake clock in lab/delayline.
func TestDelayIsWhatWasAsked(t *testing.T) {
	t.Parallel()
	l := lab.New(t, pair(delayline.Params{}))
	h1, h2 := l.Host("h1"), l.Host("h2")
	roundTrip(t, h1, h2) // The first ping sends ARP requests as well.
	set := func(there, back time.Duration) {
		t.Helper()
		if err := l.SetLinkDirections(testContext(t), "wan", &delayline.Params{Delay: there}, &delayline.Params{Delay: back}); err != nil {
			t.Fatal(err)
		}
	}
	const early = 500 * time.Microsecond // The delay line's timer may be early by this much.
	for _, c := range [][2]time.Duration{{80 * time.Millisecond, 80 * time.Millisecond}, {5 * time.Millisecond, 35 * time.Millisecond}, {0, time.Millisecond}} {
		set(c[0], c[1])
		got := roundTrip(t, h1, h2)
		t.Logf("asked %v there and %v back, measured %v", c[0], c[1], got)
		if got < c[0]+c[1]-early {
			t.Errorf("asked %v there and %v back, measured %v", c[0], c[1], got)
		}
	}
	set(100*time.Millisecond, 0)
	roundTrip(t, h1, h2)
	set(0, 0)
	waitFor(t, "the delay to be gone", func() bool { return roundTrip(t, h1, h2) < 100*time.Millisecond })
}

// waitFor polls a condition.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		<-tick.C
	}
}

// TestQueueIsWhatWasAsked offers a link far more than it carries, and checks that its queue fills
// up to the requested length and drops the rest.
func TestQueueIsWhatWasAsked(t *testing.T) {
	t.Parallel()
	l := lab.New(t, pair(delayline.Params{Rate: 1e6, Delay: 5 * time.Millisecond, Queue: 100_000}))
	waitFor(t, "the hosts to know each other", func() bool { return pings(t, l.Host("h1"), l.Host("h2").Addr().String()) })
	sent := sendDatagrams(t, l.Host("h1"), l.Host("h2"))
	var st delayline.Stats
	waitFor(t, "the link to run empty", func() bool {
		both, err := l.Link("wan").Stats(testContext(t))
		st = both.AtoB.Stats
		return err == nil && st.FlightBytes == 0 && st.ReceivedPackets >= uint64(sent)
	})
	if st.Dropped == 0 || st.QueueMax < 90_000 || st.QueueMax > 100_000 || st.Dropped+st.DeliveredPackets != st.ReceivedPackets {
		t.Errorf("more than the link carries must fill the queue of 100 kB: %+v", st)
	}
}

// TestLossIsWhatWasAsked counts packets at the interface of the receiver, independently of the
// link.
func TestLossIsWhatWasAsked(t *testing.T) {
	t.Parallel()
	const loss = 0.05
	l := lab.New(t, pair(delayline.Params{Loss: loss}))
	h1, h2 := l.Host("h1"), l.Host("h2")
	// The link may lose the ARP request. Packets that wait for the answer would fill the kernel's
	// queue and be dropped before the link.
	waitFor(t, "the hosts to know each other", func() bool { return pings(t, h1, h2.Addr().String()) })
	arrived := received(t, h2)
	sent := sendDatagrams(t, h1, h2)
	var st delayline.Stats
	waitFor(t, "the link to run empty", func() bool {
		both, err := l.Link("wan").Stats(testContext(t))
		st = both.AtoB.Stats
		return err == nil && st.FlightBytes == 0 && st.ReceivedPackets >= uint64(sent)
	})
	within(t, "at the receiver", sent, sent-(received(t, h2)-arrived), loss)
	within(t, "by its counters the link", int(st.ReceivedPackets), int(st.Lost), loss)
}

// sendDatagrams sends 4,000 datagrams in small bursts and returns the number.
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
	const bursts, burst = 200, 20
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

// otherPackets bounds the packets that may arrive besides: ARP and neighbour discovery.
const otherPackets = 20

// received returns the number of packets that the kernel has received at a host's interface.
func received(t *testing.T, h *lab.LiveHost) int {
	t.Helper()
	_, counters, _ := strings.Cut(output(t, h, "cat", "/proc/net/dev"), "eth0:")
	n, err := strconv.Atoi(strings.Fields(counters)[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// within checks that a number of losses is within four standard deviations of the expected number.
func within(t *testing.T, what string, packets, lost int, loss float64) {
	t.Helper()
	want := float64(packets) * loss
	t.Logf("%s: %d of %d lost, asked %.0f", what, lost, packets, want)
	if packets < 1000 || math.Abs(float64(lost)-want) > 4*math.Sqrt(want)+otherPackets {
		t.Errorf("%s: %d of %d packets lost, want about %.0f", what, lost, packets, want)
	}
}
