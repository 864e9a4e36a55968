package mobilityfirst

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/mobilityfirst/host"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
	"github.com/sluice-net/sluice/services/mobilityfirst/hosttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// begin marks a live test that may run beside others.
func begin(t *testing.T) {
	t.Helper()
	live.Test(t)
	t.Parallel()
}

// patience bounds what a test waits for.
const patience = time.Minute

// line is three switches in a row, with a host at the ends, and one in the middle.
func line(name string) lab.Topology {
	t := lab.Topology{Name: name, Switches: []lab.Switch{{Name: "s1"}, {Name: "s2"}, {Name: "s3"}}, Hosts: []lab.Host{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
	for _, l := range [][2]string{{"a", "s1"}, {"s1", "s2"}, {"s2", "s3"}, {"b", "s3"}, {"c", "s2"}} {
		t.Links = append(t.Links, lab.Both(l[0], l[1], delayline.Params{}))
	}
	return t
}

// run runs a MobilityFirst host on a lab's, and gives the socket where it takes applications.
func run(t *testing.T, at *lab.LiveHost) (socket string, stop func()) {
	t.Helper()
	return hosttest.Run(t, host.Options{Interfaces: []string{"eth0"}, Open: opener(at)})
}

// opener opens interfaces of a lab's host.
func opener(at *lab.LiveHost) func(name string) (*host.Interface, error) {
	return func(name string) (i *host.Interface, err error) {
		err = errors.Join(at.Do(func() error { i, err = host.OpenInterface(name); return nil }), err)
		return i, err
	}
}

// open attaches a new name.
func open(t *testing.T, socket string) (*hostapi.Client, ed25519.PrivateKey) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return hosttest.Open(t, socket, key), key
}

// program runs the program at a host of a lab until the test ends, or it is killed.
func program(t *testing.T, at *lab.LiveHost, log string, args ...string) *testbed.Daemon {
	t.Helper()
	d, err := testbed.StartDaemon(context.WithoutCancel(t.Context()), at, log, selfbuild.Binary(t), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if d.Kill(); t.Failed() {
			t.Logf("%q: %s", args, testbed.Tail(log, 20))
		}
	})
	return d
}

// newName makes a name's key in a file.
func newName(t *testing.T, key string) string {
	t.Helper()
	name, err := exec.CommandContext(t.Context(), selfbuild.Binary(t), "mf", "name", "new", key).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(name))
}

// random are bytes that are told apart.
func random(t *testing.T, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return b
}

// receive receives a chunk and takes it.
func receive(t *testing.T, c *hostapi.Client) hostapi.Chunk {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	x, err := c.Receive(ctx)
	if err == nil {
		err = c.Take(x)
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// maxNamePacketIns bounds the frames of hosts of names that reach the controller in TestSmoke once
// there is a path: hellos every ten seconds, and requests when a lease ends.
const maxNamePacketIns = 100

// TestSmoke proves MobilityFirst's main job: chunks of all sizes go to a name by a label over three
// switches, between hosts that have no IP addresses to know of; each is taken once and unchanged, and
// its sender is told so. Once there is a path, no chunk reaches the controller.
func TestSmoke(t *testing.T) {
	begin(t)
	l := lab.New(t, line("mfsmoke"))
	controller := control(t, l)
	a, b := pair(t, l, controller)
	if _, err := a.Ping(b.Name, patience); err != nil {
		t.Fatal(err)
	}
	send(t, a, b, 1, 1000)
	before := controller.namePacketIns()
	const small = 2000
	send(t, a, b, small, 1000)
	var chunks [][]byte
	bytesSent := 0
	for _, n := range []int{0, 1, 1000, 1500, 100_000, 4 << 20, 16 << 20} {
		chunks = append(chunks, random(t, n))
		bytesSent += n
	}
	became := make(chan error, len(chunks))
	go func() {
		for _, c := range chunks {
			if err := a.Send(t.Context(), b.Name, 0, c, func(err error) { became <- err }); err != nil {
				became <- err
			}
		}
	}()
	for i, want := range chunks {
		if got := receive(t, b); got.From != a.Name || !bytes.Equal(got.Payload, want) {
			t.Errorf("chunk %d of %d bytes: %d from %v", i, len(want), len(got.Payload), got.From)
		}
	}
	for range chunks {
		if err := <-became; err != nil {
			t.Error(err)
		}
	}
	if n := controller.namePacketIns() - before; n > maxNamePacketIns {
		t.Errorf("%d frames of names have reached the controller, of chunks for which there is a path; want at most %d", n, maxNamePacketIns)
	}
	// Switches report the counters of their rules with a delay.
	frames := small + bytesSent/1500
	eventually(t, "all packets have had labels", func() bool { return total(labelled(t, l.Switch("s2"))) >= frames })
}

// What an application has not taken when it ends, or its host does, comes to the next one with its name,
// on whichever host that is.
func TestNextReceiver(t *testing.T) {
	begin(t)
	l := lab.New(t, line("mfnext"))
	control(t, l)
	at, _ := run(t, l.Host("a"))
	bt, stopB := run(t, l.Host("b"))
	ct, _ := run(t, l.Host("c"))
	a, _ := open(t, at)
	b, key := open(t, bt)
	became := make(chan error, 10)
	for i := range byte(10) {
		if err := a.Send(t.Context(), b.Name, 0, []byte{i}, func(err error) { became <- err }); err != nil {
			t.Fatal(err)
		}
	}
	next := byte(0)
	expect := func(c *hostapi.Client, until byte) {
		t.Helper()
		for ; next < until; next++ {
			if x := receive(t, c); len(x.Payload) != 1 || x.Payload[0] != next {
				t.Fatalf("chunk %v, want %d", x.Payload, next)
			}
			if err := <-became; err != nil {
				t.Error(err)
			}
		}
	}
	expect(b, 3)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	expect(hosttest.Open(t, bt, key), 6)
	stopB()
	expect(hosttest.Open(t, ct, key), 10)
}

// A name is attached once, and what is no message ends the connection with the reason.
func TestApplications(t *testing.T) {
	begin(t)
	l := lab.New(t, line("mfapps"))
	socket, _ := run(t, l.Host("a"))
	_, key := open(t, socket)
	if _, err := hostapi.Open(t.Context(), socket, key); err == nil {
		t.Error("a name is attached twice")
	}
	for name, say := range map[string][]hostapi.Message{
		"nothing attached": {{Kind: hostapi.Send}},
		"never came":       {{Kind: hostapi.Attach, Seed: [32]byte{1}}, {Kind: hostapi.Take, Number: 7}},
		"not its turn":     {{Kind: hostapi.Attach, Seed: [32]byte{2}}, {Kind: hostapi.Attached}},
	} {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range say {
			if _, err := conn.Write(m.AppendHead(nil)); err != nil {
				t.Fatal(err)
			}
		}
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		var m hostapi.Message
		for in := bufio.NewReader(conn); m.Kind != hostapi.Failed && err == nil; {
			m, err = hostapi.Read(in, hostapi.MaxMessage)
		}
		if err != nil || m.Reason == "" {
			t.Errorf("%s: %v, %q", name, err, m.Reason)
		}
		_ = conn.Close()
	}
}
