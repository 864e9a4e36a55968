package mobilityfirst

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/network"
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

// These are the addresses of twoDomains.
const (
	westA, westB, westC, westRouter = "10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.254"
	eastB, eastD, eastRouter        = "10.2.0.2", "10.2.0.3", "10.2.0.254"
	westNet, eastNet                = "10.1.0.0/16", "10.2.0.0/16"
)

// twoDomains is two networks, each with a controller and a subnet of its own, between which a router
// forwards IP packets only. The west has three switches in a row; the east has one. Host b has a link
// to each.
func twoDomains(name string) lab.Topology {
	host := func(name, address, router, other string) lab.Host {
		return lab.Host{
			Name: name, Addresses: []netip.Prefix{netip.MustParsePrefix(address + "/16")},
			Routes: []lab.Route{{To: netip.MustParsePrefix(other), Via: netip.MustParseAddr(router)}},
		}
	}
	t := lab.Topology{
		Name:        name,
		Controllers: []lab.Controller{{Name: "west"}, {Name: "east"}},
		Hosts: []lab.Host{
			host("a", westA, westRouter, eastNet), host("b", westB, westRouter, eastNet), host("c", westC, westRouter, eastNet),
			host("d", eastD, eastRouter, westNet),
			{Name: "r", Router: true},
		},
	}
	for _, s := range []string{"s1", "s2", "s3", "s4"} {
		domain := "west"
		if s == "s4" {
			domain = "east"
		}
		t.Switches = append(t.Switches, lab.Switch{Name: s, Controllers: []string{domain}})
	}
	for _, ends := range [][2]string{{"a", "s1"}, {"s1", "s2"}, {"s2", "s3"}, {"b", "s3"}, {"b", "s4"}, {"c", "s2"}, {"d", "s4"}} {
		t.Links = append(t.Links, lab.Both(ends[0], ends[1], delayline.Params{}))
	}
	for _, x := range [][2]string{{westRouter, "s2"}, {eastRouter, "s4"}} {
		t.Links = append(t.Links, lab.Link{A: lab.End{Node: "r", Addresses: []netip.Prefix{netip.MustParsePrefix(x[0] + "/16")}}, B: lab.End{Node: x[1]}})
	}
	return t
}

// nameServices runs a name service in each of twoDomains, and returns the address of each.
func nameServices(t *testing.T, l *lab.Lab, dir string) (west, east string) {
	t.Helper()
	west, east = westC+":5001", eastD+":5001"
	for domain, host := range map[string]string{"west": "c", "east": "d"} {
		daemon(t, l.Host(host), dir, "mf", "gnrs", "--dir", filepath.Join(dir, domain), "--self", domain, "--replicas", "2", "--domain", "west="+west, "--domain", "east="+east)
	}
	return west, east
}

// TestCustodyWhileMoving checks that chunks to a host arrive once, in order and whole, while it moves
// between switches, changes to another domain and back, and disappears for a while. The other domain
// has a controller and a name service of its own. The storage node, which has the chunks meanwhile,
// is killed in between.
func TestCustodyWhileMoving(t *testing.T) {
	begin(t)
	chunks, moves, away := 1500, 8, 3*time.Second
	if *whole {
		chunks, moves, away = 10_000, 50, 20*time.Second
	}
	l := lab.New(t, twoDomains("mfcustody"))
	for _, domain := range []string{"west", "east"} {
		at, err := l.ControllerAddrOf(domain)
		if err != nil {
			t.Fatal(err)
		}
		controlAt(t, l, at, network.Config{})
	}
	dir := t.TempDir()
	west, east := nameServices(t, l, dir)
	node, nodeName := newStorageNode(t, l.Host("c"))
	start := func(host, names string, more ...string) (socket string) {
		socket = filepath.Join(dir, host+".sock")
		daemon(t, l.Host(host), dir, append([]string{"mf", "host", "--socket", socket, "--interface", "eth0", "--udp", "5028", "--names", names}, more...)...)
		return socket
	}
	at, bt, ct := start("a", west, "--storage", nodeName.String(), "--keep", "5m"), start("b", east), start("c", west)
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
	var arrived atomic.Int64
	go func() { received <- receiveNumbered(t.Context(), to, from.Name, chunks, &arrived) }()

	order := []string{"s2", "s1", "s2", "s3"}
	for i := range moves {
		pause.For(200*time.Millisecond, "chunks are under way")
		if i == moves/4 {
			elsewhere(t, l, true)
			before := arrived.Load()
			// The host may have received some chunks before that the application takes only now.
			eventually(t, "chunks arrive in the other domain", func() bool { return arrived.Load() > before+2*hostapi.MaxAhead })
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

// elsewhere moves host b to the other domain, where it has another address, or back.
func elsewhere(t *testing.T, l *lab.Lab, other bool) {
	t.Helper()
	leaves, comes, address, router, rest := "eth0", "eth1", eastB, eastRouter, westNet
	if !other {
		leaves, comes, address, router, rest = "eth1", "eth0", westB, westRouter, eastNet
	}
	if err := l.SetLink(t.Context(), "b-s3", !other); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"-4", "addr", "flush", "dev", leaves},
		{"-4", "route", "flush", "dev", leaves},
		{"addr", "add", address + "/16", "dev", comes},
		{"route", "replace", rest, "via", router, "dev", comes},
	} {
		if out, err := l.Host("b").Command(t.Context(), "ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %q: %v: %s", args, err, out)
		}
	}
}

// receiveNumbered takes chunks from a sender and counts them. The error says what is wrong with them.
func receiveNumbered(ctx context.Context, to *hostapi.Client, from frame.GUID, chunks int, arrived *atomic.Int64) error {
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
		arrived.Add(1)
	}
	return nil
}
