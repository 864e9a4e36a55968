package storage

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/host"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
	"github.com/sluice-net/sluice/services/mobilityfirst/hosttest"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// childSocket and childDir make this program run as a node, until it is killed.
const childSocket, childDir = "SLUICE_STORAGE_SOCKET", "SLUICE_STORAGE_DIR"

func TestMain(m *testing.M) {
	if socket := os.Getenv(childSocket); socket != "" {
		fmt.Fprintln(os.Stderr, runChild(socket, os.Getenv(childDir)))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func runChild(socket, dir string) error {
	c, err := hostapi.Open(context.Background(), socket, nodeKey)
	if err != nil {
		return err
	}
	n, err := New(Options{Host: c, Dir: dir, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	fmt.Println("runs")
	return n.Run(context.Background())
}

var (
	nodeKey, senderKey, receiverKey = keyOf(100), keyOf(1), keyOf(3)
	nodeName, receiverName          = record.NameOfOwner(nodeKey), record.NameOfOwner(receiverKey)
)

// runHost runs a host whose delay-tolerant chunks go to the node.
func runHost(t *testing.T) string { t.Helper(); return runHostKeeping(t, host.DefaultKeep) }

// runHostKeeping runs a host that gives up chunks after a while if the node does not take them.
func runHostKeeping(t *testing.T, keep time.Duration) string {
	t.Helper()
	socket, _ := hosttest.Run(t, host.Options{Storage: []frame.GUID{nodeName}, Keep: keep})
	return socket
}

// runNode runs a node at a host until the test ends or stop is called.
func runNode(t *testing.T, socket, dir string, change func(*Node)) (n *Node, stop func()) {
	t.Helper()
	c, err := hostapi.Open(t.Context(), socket, nodeKey)
	if err != nil {
		t.Fatal(err)
	}
	if n, err = New(Options{Host: c, Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(n)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var all sync.WaitGroup
	all.Go(func() {
		if err := n.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(stop)
	return n, stop
}

// sending sends numbers, and records the result of each.
type sending struct {
	all   sync.WaitGroup
	mu    sync.Mutex
	taken []uint64
	err   error
}

func (s *sending) send(ctx context.Context, c *hostapi.Client, to frame.GUID, number uint64) error {
	s.all.Add(1)
	err := c.Send(ctx, to, frame.DelayTolerant, binary.BigEndian.AppendUint64(nil, number), func(err error) {
		defer s.all.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			s.err = err
		} else {
			s.taken = append(s.taken, number)
		}
	})
	if err != nil {
		s.all.Done()
	}
	return err
}

// sendAll sends numbers from 1 on, and waits until all are taken over.
func sendAll(t *testing.T, c *hostapi.Client, to frame.GUID, n uint64) {
	t.Helper()
	var s sending
	for number := uint64(1); number <= n; number++ {
		if err := s.send(t.Context(), c, to, number); err != nil {
			t.Fatal(err)
		}
	}
	if s.all.Wait(); s.err != nil {
		t.Fatal(s.err)
	}
}

// receive takes the next chunk from the sender.
func receive(t *testing.T, c *hostapi.Client) uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	x, err := c.Receive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if x.From != record.NameOfOwner(senderKey) || x.Service != frame.DelayTolerant || len(x.Payload) != 8 {
		t.Fatalf("%d bytes from %v, service %x", len(x.Payload), x.From, x.Service)
	}
	if err := c.Take(x); err != nil {
		t.Fatal(err)
	}
	return binary.BigEndian.Uint64(x.Payload)
}

func receiveInOrder(t *testing.T, c *hostapi.Client, from, to uint64) {
	t.Helper()
	for want := from; want <= to; want++ {
		if got := receive(t, c); got != want {
			t.Fatalf("%d has come, want %d", got, want)
		}
	}
}

// eventually waits until a node has reached a state.
func eventually(t *testing.T, n *Node, what string, is func(Counters) bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !is(n.Counters()) {
		if time.Now().After(deadline) {
			t.Fatalf("not %s: %+v", what, n.Counters())
		}
		pause.For(10*time.Millisecond, "the node works")
	}
}

// Chunks for an absent name are stored, even across a restart of the node, and delivered as the
// sender's, in order, when the receiver is present.
func TestKeptAndHandedOn(t *testing.T) {
	socket, dir := runHost(t), t.TempDir()
	sender := hosttest.Open(t, socket, senderKey)
	n, stop := runNode(t, socket, dir, nil)
	sendAll(t, sender, receiverName, 300)
	if c := n.Counters(); c.Kept != 300 || c.Chunks != 300 || c.Destinations != 1 || c.HandedOn != 0 {
		t.Errorf("%+v", c)
	}
	stop()
	n, _ = runNode(t, socket, dir, nil)
	if at := n.room.perPlace; len(at) != 1 || at[0] != 0 || n.room.used != 300*minCharge {
		t.Errorf("after a restart %d bytes are counted, by places %v", n.room.used, at)
	}
	receiver := hosttest.Open(t, socket, receiverKey)
	receiveInOrder(t, receiver, 1, 300)
	sendAll(t, sender, receiverName, 20) // while it is there
	receiveInOrder(t, receiver, 1, 20)
	eventually(t, n, "all is handed on", func(c Counters) bool { return c.HandedOn == 320 && c.Chunks == 0 && c.Bytes == 0 })
	n.sweep(time.Now())
	if rest, err := filepath.Glob(filepath.Join(dir, "*", "*")); err != nil || len(rest) > 0 {
		t.Errorf("%v is left, %v", rest, err)
	}
}

// A node that is killed while it takes and delivers chunks loses none that it has taken over, and
// none arrives twice.
func TestKilled(t *testing.T) {
	t.Parallel()
	socket, dir := runHost(t), t.TempDir()
	sender, receiver := hosttest.Open(t, socket, senderKey), hosttest.Open(t, socket, receiverKey)
	ctx, cancel := context.WithCancel(t.Context())
	var s sending
	var sends sync.WaitGroup
	sends.Go(func() {
		for number := uint64(1); ctx.Err() == nil; number++ {
			_ = s.send(ctx, sender, receiverName, number)
			pause.For(200*time.Microsecond, "chunks come one after the other")
		}
	})
	var mu sync.Mutex
	var got []uint64
	var receives sync.WaitGroup
	receives.Go(func() {
		for {
			x, err := receiver.Receive(t.Context())
			if err != nil {
				return
			}
			mu.Lock()
			got = append(got, binary.BigEndian.Uint64(x.Payload))
			mu.Unlock()
			_ = receiver.Take(x)
		}
	})
	for i := range 10 {
		child := startChild(t, socket, dir)
		pause.For(time.Duration(100+40*i)*time.Millisecond, "the node works")
		kill(t, child)
	}
	cancel()
	sends.Wait()
	n, _ := runNode(t, socket, dir, nil)
	s.all.Wait()
	eventually(t, n, "all is handed on", func(c Counters) bool { return c.Chunks == 0 })
	_ = receiver.Close()
	receives.Wait()
	received := map[uint64]bool{}
	for i, number := range got {
		if received[number] = true; i > 0 && number <= got[i-1] {
			t.Errorf("%d has come behind %d", number, got[i-1])
		}
	}
	for _, number := range s.taken {
		if !received[number] {
			t.Errorf("%d, which the node had taken, has not come", number)
		}
	}
	if len(s.taken) < 100 {
		t.Errorf("%d chunks were taken: too few to tell", len(s.taken))
	}
	t.Logf("%d taken, %d received", len(s.taken), len(got))
}

func startChild(t *testing.T, socket, dir string) *exec.Cmd {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childSocket+"="+socket, childDir+"="+dir)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the node does not run: %q, %v", line, err)
	}
	return child
}

func kill(t *testing.T, child *exec.Cmd) {
	t.Helper()
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed
}

// A sender that has reached its limit keeps its further chunks, and others are served.
func TestShare(t *testing.T) {
	socket := runHostKeeping(t, 3*time.Second)
	greedy, other := hosttest.Open(t, socket, keyOf(2)), hosttest.Open(t, socket, senderKey)
	n, _ := runNode(t, socket, t.TempDir(), func(n *Node) { n.room.size = senderShare * 10 * minCharge })
	var s sending
	for number := uint64(1); number <= 15; number++ {
		if err := s.send(t.Context(), greedy, receiverName, number); err != nil {
			t.Fatal(err)
		}
	}
	sendAll(t, other, receiverName, 5)
	s.all.Wait()
	if len(s.taken) < 9 || len(s.taken) > 10 || !errors.Is(s.err, hostapi.ErrNotTaken) { // of what the other leaves
		t.Errorf("%d of who has room for 9 or 10 are taken, %v", len(s.taken), s.err)
	}
	if c := n.Counters(); c.Chunks != len(s.taken)+5 || c.Refused == 0 {
		t.Errorf("%+v", c)
	}
}

// A chunk that the disk has damaged is reported, and does not delay others.
func TestDamaged(t *testing.T) {
	socket, dir := runHost(t), t.TempDir()
	sender := hosttest.Open(t, socket, senderKey)
	n, _ := runNode(t, socket, dir, nil)
	sendAll(t, sender, receiverName, 4)
	files, err := filepath.Glob(filepath.Join(dir, receiverName.String(), "*-0000000000000002-*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(files[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	receiver := hosttest.Open(t, socket, receiverKey)
	for _, want := range []uint64{1, 3, 4} {
		if got := receive(t, receiver); got != want {
			t.Errorf("%d has come, want %d", got, want)
		}
	}
	eventually(t, n, "one is lost", func(c Counters) bool { return c.Lost == 1 && c.HandedOn == 3 && c.Chunks == 0 })
}

// Invalid chunks are refused: an ordinary one, one that another name has signed, an expired one.
func TestNotKept(t *testing.T) {
	t.Parallel()
	socket := runHostKeeping(t, 3*time.Second)
	sender := hosttest.Open(t, socket, keyOf(2))
	n, _ := runNode(t, socket, t.TempDir(), nil)
	for range 2 { // the host itself drops what only looks like one
		if err := sender.Send(t.Context(), nodeName, frame.Custody, []byte("payload"), func(error) {}); err != nil {
			t.Fatal(err)
		}
	}
	foreign := signed(receiverName, 1, 1, "of the first name").Bytes
	for what, x := range map[string]struct {
		service frame.Service
		payload []byte
	}{"ordinary": {0, []byte("payload")}, "foreign": {frame.Custody, foreign}} {
		done := make(chan error, 1)
		if err := sender.Send(t.Context(), nodeName, x.service, x.payload, func(err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, hostapi.ErrNotTaken) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if c := n.Counters(); c.Kept != 0 || c.Refused < 2 {
		t.Errorf("%+v", c)
	}
}

// One sender's chunks for many absent names, and for some that are present and take nothing, do not
// delay another's.
func TestManyAway(t *testing.T) {
	t.Parallel()
	socket := runHost(t)
	sender, receiver := hosttest.Open(t, socket, keyOf(2)), hosttest.Open(t, socket, receiverKey)
	runNode(t, socket, t.TempDir(), nil)
	var s sending
	for i := range maxAway + maxFresh {
		if err := s.send(t.Context(), sender, frame.GUID{byte(i), byte(i >> 8), 7}, 1); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		idle := hosttest.Open(t, socket, keyOf(byte(200+i)))
		if err := s.send(t.Context(), sender, idle.Name, 1); err != nil {
			t.Fatal(err)
		}
	}
	if s.all.Wait(); s.err != nil {
		t.Fatal(s.err)
	}
	sendAll(t, hosttest.Open(t, socket, senderKey), receiverName, 50)
	receiveInOrder(t, receiver, 1, 50)
}

// A refused sender is served when there is room again, in order.
func TestRefusedInOrder(t *testing.T) {
	t.Parallel()
	socket := runHost(t)
	greedy, other, receiver := hosttest.Open(t, socket, senderKey), hosttest.Open(t, socket, keyOf(2)), hosttest.Open(t, socket, receiverKey)
	n, _ := runNode(t, socket, t.TempDir(), func(n *Node) { n.room.size = senderShare * 5 * minCharge })
	idle := hosttest.Open(t, socket, keyOf(4))
	for round := uint64(0); round < 20; round++ {
		if err := new(sending).send(t.Context(), other, idle.Name, round); err != nil {
			t.Fatal(err)
		}
		var s sending
		for number := uint64(1); number <= 50; number++ {
			if err := s.send(t.Context(), greedy, receiverName, number); err != nil {
				t.Fatal(err)
			}
		}
		receiveInOrder(t, receiver, 1, 50)
		if s.all.Wait(); s.err != nil {
			t.Fatal(s.err)
		}
	}
	if c := n.Counters(); c.Refused == 0 {
		t.Errorf("nobody was refused: %+v", c)
	}
}
