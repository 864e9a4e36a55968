package mobilityfirst

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/host"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
	"github.com/sluice-net/sluice/services/mobilityfirst/hosttest"
	"github.com/sluice-net/sluice/services/mobilityfirst/rawlink"
)

// loop is three switches in a ring, with a host at each.
func loop(name string) lab.Topology {
	t := line(name)
	t.Links = append(t.Links, lab.Both("s1", "s3", delayline.Params{}))
	return t
}

// entry is what a switch has counted of a direction of a path, as ovs-ofctl tells.
type entry struct{ label, packets int }

// labelled are the rules of paths that a switch has.
func labelled(t *testing.T, s *lab.LiveSwitch) (all []entry) {
	t.Helper()
	out, err := s.Ofctl(t.Context(), "dump-flows")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`n_packets=(\d+),.*dl_vlan=(\d+),.*dl_type=0x27c0`).FindAllStringSubmatch(out, -1) {
		packets, _ := strconv.Atoi(m[1])
		label, _ := strconv.Atoi(m[2])
		all = append(all, entry{label, packets})
	}
	return all
}

// total is how many packets rules have counted.
func total(all []entry) (n int) {
	for _, r := range all {
		n += r.packets
	}
	return n
}

// send sends chunks of random bytes, which the other takes.
func send(t *testing.T, from, to *hostapi.Client, chunks, size int) {
	t.Helper()
	sendAs(t, from, to, 0, chunks, size, func(int) {})
}

// sendAs is send with a service, and tells of each chunk that has come.
func sendAs(t *testing.T, from, to *hostapi.Client, service frame.Service, chunks, size int, came func(i int)) {
	t.Helper()
	became := make(chan error, chunks)
	var all [][]byte
	for range chunks {
		all = append(all, random(t, size))
	}
	go func() {
		for _, c := range all {
			if err := from.Send(t.Context(), to.Name, service, c, func(err error) { became <- err }); err != nil {
				became <- err
			}
		}
	}()
	for i, want := range all {
		if got := receive(t, to); !bytes.Equal(got.Payload, want) {
			t.Fatalf("chunk %d of %d bytes has come with %d, or others", i, len(want), len(got.Payload))
		}
		came(i)
	}
	for range all {
		if err := <-became; err != nil {
			t.Fatal(err)
		}
	}
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	err := testbed.PollFor(t.Context(), patience, what, func() error {
		if !is() {
			return errors.New("it is not so")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Chunks between two names go by labels: all of them by the shortest way, which no other frame goes by; round
// a link that is cut; and to where the name has moved. Nothing of it is left after the lease.
func TestLabelledPath(t *testing.T) {
	begin(t)
	l := lab.New(t, loop("mflabels"))
	c := control(t, l)
	at, _ := run(t, l.Host("a"))
	bt, stopB := run(t, l.Host("b"))
	ct, _ := run(t, l.Host("c"))
	a, _ := open(t, at)
	b, key := open(t, bt)
	known(t, c)
	const chunks, size = 20, 1 << 20
	send(t, a, b, chunks, size)
	eventually(t, "all packets have had labels", func() bool { return total(labelled(t, l.Switch("s1"))) >= chunks*size/1500 })
	if others := labelled(t, l.Switch("s2")); len(others) > 0 {
		t.Errorf("labels at s2, which is on a longer way: %v", others)
	}
	if err := l.SetLink(t.Context(), "s1-s3", false); err != nil {
		t.Fatal(err)
	}
	send(t, a, b, chunks, size)
	eventually(t, "the path goes round the link", func() bool { return len(labelled(t, l.Switch("s2"))) > 0 })
	stopB()
	moved := hosttest.Open(t, ct, key)
	send(t, a, moved, chunks, size)
	if n := c.metric(t, `sluice_mobilityfirst_requests_total{outcome="none"}`); n != 0 {
		t.Errorf("%v requests went on without a path", n)
	}
	_ = a.Close()
	_ = moved.Close()
	eventually(t, "no label is left", func() bool {
		return len(labelled(t, l.Switch("s1")))+len(labelled(t, l.Switch("s2")))+len(labelled(t, l.Switch("s3"))) == 0
	})
}

// A host that uses another's label, or one that nobody has, reaches nobody and makes no work for the controller.
func TestForeignLabels(t *testing.T) {
	begin(t)
	l := lab.New(t, line("mfforeign"))
	c := control(t, l)
	a, b := pair(t, l, c)
	send(t, a, b, 1, 1000)
	mine := labelled(t, l.Switch("s2"))
	if len(mine) == 0 {
		t.Fatal("there is no label")
	}
	from, to := socket(t, l.Host("c")), socket(t, l.Host("b"))
	frames := make([][]byte, 0, 64)
	for i := range 64 {
		label := mine[i%len(mine)].label + i/len(mine)
		h := from.AppendHeader(nil, openflow.MAC(l.Host("b").MAC()), uint16(label))
		frames = append(frames, (&frame.Probe{Source: 0xbad, Sequence: uint32(label)}).AppendTo(h))
	}
	before := c.packetIns(t)
	for range 100 {
		if err := from.Send(frames); err != nil {
			t.Fatal(err)
		}
	}
	// What the switches have taken by now has arrived, or will not.
	send(t, a, b, 10, 1<<20)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for ctx.Err() == nil {
		got, err := to.Receive(ctx)
		if err != nil {
			break
		}
		for _, f := range got {
			if p, is := parsed(f).(*frame.Probe); is && p.Source == 0xbad {
				t.Fatalf("a frame from a stranger arrived: %+v", p)
			}
		}
	}
	if n := c.packetIns(t) - before; n > 200 {
		t.Errorf("6,400 frames with labels of nobody made %v packet-ins", n)
	}
}

func parsed(f rawlink.Frame) frame.Frame {
	x, _ := frame.Parse(f.Payload)
	return x
}

// socket opens a host's interface.
func socket(t *testing.T, at *lab.LiveHost) *host.Interface {
	t.Helper()
	i, err := opener(at)("eth0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = i.Close() })
	return i
}

// pair runs hosts at the ends of a line, each with a name that the controller knows.
func pair(t *testing.T, l *lab.Lab, c *controller) (a, b *hostapi.Client) {
	t.Helper()
	at, _ := run(t, l.Host("a"))
	bt, _ := run(t, l.Host("b"))
	a, _ = open(t, at)
	b, _ = open(t, bt)
	known(t, c)
	return a, b
}

// known waits until the controller knows two names.
func known(t *testing.T, c *controller) {
	t.Helper()
	eventually(t, "the names are known", func() bool { return c.metric(t, "sluice_mobilityfirst_names") >= 2 })
}

// Chunks go on while the controller is away and when it is back, by labels again.
func TestControllerAway(t *testing.T) {
	begin(t)
	l := lab.New(t, line("mfaway"))
	c := control(t, l)
	a, b := pair(t, l, c)
	send(t, a, b, 5, 1<<20)
	c.stop()
	began := time.Now()
	send(t, a, b, 5, 1<<20)
	t.Logf("5 MiB without a controller in %v", time.Since(began))
	eventually(t, "all packets have had labels", func() bool { return total(labelled(t, l.Switch("s2"))) >= 10<<20/1500 })
	c = control(t, l)
	began = time.Now()
	send(t, a, b, 50, 1<<20)
	t.Logf("50 MiB while it comes back in %v", time.Since(began))
	slowest := time.Duration(0)
	eventually(t, "the path is leased anew", func() bool {
		began := time.Now()
		send(t, a, b, 1, 1000)
		slowest = max(slowest, time.Since(began))
		return slices.Contains(c.paths(t), a.Name.String())
	})
	t.Logf("a chunk has taken %v at most since then", slowest)
	send(t, a, b, 5, 1<<20)
}

// TestControllerEnds checks what names do when their controller has ended, even before it has known the links: those at
// hosts between which there is a path find each other by its labels, whether they are known or new.
func TestControllerEnds(t *testing.T) {
	begin(t)
	l := lab.New(t, line("mfends"))
	c := control(t, l)
	at, _ := run(t, l.Host("a"))
	bt, _ := run(t, l.Host("b"))
	a, _ := open(t, at)
	b, _ := open(t, bt)
	known(t, c)
	send(t, a, b, 1, 1000)
	c.stop()
	x, _ := open(t, at)
	y, _ := open(t, bt)
	z, _ := open(t, at)
	send(t, x, b, 5, 1<<20)
	send(t, y, a, 1, 1000)
	send(t, y, z, 1, 1000)
	if _, err := z.Ping(b.Name, patience); err != nil {
		t.Error(err)
	}
	eventually(t, "all packets have had labels", func() bool { return total(labelled(t, l.Switch("s2"))) >= 5<<20/1500 })
}
