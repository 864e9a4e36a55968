package mobilityfirst

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

var whole = flag.Bool("whole", false, "run TestCustodyWhileMoving in full: 10,000 chunks, 50 moves, 20 s away")

// storageNode is a "sluice mf storage" at a host's socket.
type storageNode struct {
	t    *testing.T
	at   *lab.LiveHost
	dir  string
	args []string
	*testbed.Daemon
}

// newStorageNode makes the name of one that does not run yet.
func newStorageNode(t *testing.T, at *lab.LiveHost) (*storageNode, frame.GUID) {
	t.Helper()
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	name, err := frame.ParseGUID(newName(t, key))
	if err != nil {
		t.Fatal(err)
	}
	return &storageNode{t: t, at: at, dir: dir, args: []string{"mf", "storage", "--name-key", key, "--dir", filepath.Join(dir, "chunks")}}, name
}

// start runs it until it is killed, or the test ends.
func (n *storageNode) start(socket string) {
	n.t.Helper()
	log := filepath.Join(n.dir, "log")
	d, err := testbed.StartDaemon(context.WithoutCancel(n.t.Context()), n.at, log, selfbuild.Binary(n.t), append(n.args, "--socket", socket)...)
	if err != nil {
		n.t.Fatal(err)
	}
	n.Daemon = d
	n.t.Cleanup(func() {
		if d.Kill(); n.t.Failed() {
			n.t.Logf("storage: %s", testbed.Tail(log, 20))
		}
	})
}

// numbered is a chunk of some thousand bytes with its number and its checksum.
func numbered(t *testing.T, number int) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(number))
	b = append(b, random(t, 500+number%2000)...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// numberOf checks a chunk, and gives its number.
func numberOf(b []byte) (int, error) {
	if len(b) < 4+sha256.Size {
		return 0, fmt.Errorf("%d bytes", len(b))
	}
	body, sum := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if want := sha256.Sum256(body); !bytes.Equal(sum, want[:]) {
		return 0, fmt.Errorf("%d bytes with a wrong checksum", len(b))
	}
	return int(binary.BigEndian.Uint32(b)), nil
}

// Chunks to a host that moves between switches time and again, changes to a network that only UDP joins to this one and back,
// and disappears for a while, arrive once, in order and whole, though the storage node which has them meanwhile is killed in
// between.
func TestCustodyWhileMoving(t *testing.T) {
	begin(t)
	chunks, moves, away := 1500, 8, 3*time.Second
	if *whole {
		chunks, moves, away = 10_000, 50, 20*time.Second
	}
	top := line("mfcustody")
	top.Links = append(top.Links, lab.Both("b", "s1", delayline.Params{})) // its way to the other network: no names are on it
	l := lab.New(t, top)
	control(t, l)
	dir := t.TempDir()
	names := l.Host("c").Addr().String() + ":5001"
	daemon(t, l.Host("c"), dir, "mf", "gnrs", "--listen", names, "--dir", filepath.Join(dir, "names"))
	node, nodeName := newStorageNode(t, l.Host("c"))
	start := func(host string, more ...string) (socket string) {
		socket = filepath.Join(dir, host+".sock")
		daemon(t, l.Host(host), dir, append([]string{"mf", "host", "--socket", socket, "--interface", "eth0", "--udp", "5028", "--names", names}, more...)...)
		return socket
	}
	at, bt, ct := start("a", "--storage", nodeName.String(), "--keep", "5m"), start("b"), start("c")
	from, to := attachAt(t, at), attachAt(t, bt)
	attachAt(t, ct)
	node.start(ct)

	sent := make(chan error, 2)
	go func() {
		became := make(chan error, chunks)
		for number := range chunks {
			if err := from.Send(t.Context(), to.Name, frame.DelayTolerant, numbered(t, number), func(err error) { became <- err }); err != nil {
				became <- err
			}
			pause.For(2*time.Millisecond, "chunks come one after the other")
		}
		for range chunks {
			if err := <-became; err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	received := make(chan error, 1)
	go func() { received <- receiveNumbered(t.Context(), to, from.Name, chunks) }()

	order := []string{"s2", "s1", "s2", "s3"}
	for i := range moves {
		pause.For(200*time.Millisecond, "chunks are under way")
		if i == moves/4 {
			elsewhere(t, l, true)
			pause.For(away/2, "chunks are under way")
			elsewhere(t, l, false)
		}
		if err := l.MoveLink(t.Context(), "b-s3", order[i%len(order)]); err != nil {
			t.Fatal(err)
		}
		switch i {
		case moves / 2:
			if err := l.SetLink(t.Context(), "b-s3", false); err != nil {
				t.Fatal(err)
			}
			pause.For(away/2, "the host is away")
			node.Kill()
			node.start(ct)
			pause.For(away/2, "the host is away")
			if err := l.SetLink(t.Context(), "b-s3", true); err != nil {
				t.Fatal(err)
			}
		case moves - 2:
			node.Kill()
			node.start(ct)
		}
	}
	for what, c := range map[string]chan error{"sent": sent, "received": received} {
		select {
		case err := <-c:
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(2 * patience):
			t.Fatalf("not all are %s", what)
		}
	}
	list, err := exec.CommandContext(t.Context(), selfbuild.Binary(t), "mf", "storage", "list", "--dir", filepath.Join(node.dir, "chunks")).CombinedOutput()
	if err != nil || strings.Contains(string(list), to.Name.String()) {
		t.Errorf("%v: the node has %s", err, list)
	}
}

// elsewhere has a host be in the other network, with another address, or back.
func elsewhere(t *testing.T, l *lab.Lab, other bool) {
	t.Helper()
	home := l.Host("b").Addr().String() + "/8"
	leaves, comes, address := "eth0", "eth1", "10.0.0.77/8"
	if !other {
		leaves, comes, address = "eth1", "eth0", home
	}
	if err := l.SetLink(t.Context(), "b-s3", !other); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-4", "addr", "flush", "dev", leaves}, {"addr", "add", address, "dev", comes}} {
		if out, err := l.Host("b").Command(t.Context(), "ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %q: %v: %s", args, err, out)
		}
	}
}

// receiveNumbered takes chunks from a sender, and says what is wrong with them.
func receiveNumbered(ctx context.Context, to *hostapi.Client, from frame.GUID, chunks int) error {
	for want := range chunks {
		x, err := to.Receive(ctx)
		if err != nil {
			return fmt.Errorf("chunk %d: %w", want, err)
		}
		got, err := numberOf(x.Payload)
		if err != nil || got != want || x.From != from {
			return fmt.Errorf("chunk %d of %v has come instead of %d of %v: %w", got, x.From, want, from, err)
		}
		if err := to.Take(x); err != nil {
			return err
		}
	}
	return nil
}
