package mobilityfirst

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
)

// received is how many packets a host's interface has received, and how many bytes they had.
func received(t *testing.T, at *lab.LiveHost) (packets, bytes int) {
	t.Helper()
	out, err := at.Command(t.Context(), "ip", "-s", "-j", "link", "show", "eth0").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Stats struct{ RX struct{ Packets, Bytes int } } `json:"stats64"`
	}
	if err := json.Unmarshal(out, &all); err != nil || len(all) != 1 {
		t.Fatalf("%q: %v", out, err)
	}
	return all[0].Stats.RX.Packets, all[0].Stats.RX.Bytes
}

// Chunks to a far host go in frames as large as arrive there, and in smaller ones when these do not arrive any more: none
// is lost.
func TestFarMTU(t *testing.T) {
	begin(t)
	top := line("mfmtu")
	for i := range top.Links {
		top.Links[i].MTU = 3000
	}
	l := lab.New(t, top)
	dir := t.TempDir()
	d, err := testbed.Deploy(context.WithoutCancel(t.Context()), testbed.Options{Lab: l, Binary: selfbuild.Binary(t), LogDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	service := l.Host("c").Addr().String() + ":5001"
	daemon(t, l.Host("c"), dir, "mf", "gnrs", "--listen", service, "--dir", filepath.Join(dir, "names"))
	as, bs := filepath.Join(dir, "a.sock"), filepath.Join(dir, "b.sock")
	daemon(t, l.Host("a"), dir, "mf", "host", "--socket", as, "--udp", "5028", "--names", service)
	daemon(t, l.Host("b"), dir, "mf", "host", "--socket", bs, "--udp", "5028", "--names", service)
	from, to := attachAt(t, as), attachAt(t, bs)

	// carry carries a chunk, and gives how large packets were that the receiver's interface took meanwhile.
	carry := func() (size int) {
		t.Helper()
		want := random(t, 1_000_000)
		became := make(chan error, 1)
		packets, total := received(t, l.Host("b"))
		if err := from.Send(t.Context(), to.Name, 0, want, func(err error) { became <- err }); err != nil {
			t.Fatal(err)
		}
		if got := receive(t, to); !bytes.Equal(got.Payload, want) {
			t.Fatalf("%d bytes of %d have come, or others", len(got.Payload), len(want))
		}
		if err := <-became; err != nil {
			t.Fatal(err)
		}
		after, all := received(t, l.Host("b"))
		return (all - total) / (after - packets)
	}
	carry()
	for _, mtu := range []int{3000, 1500, 1300} {
		args := strings.Fields("link set eth0 mtu " + strconv.Itoa(mtu)) // what is larger the receiver's end drops
		if out, err := l.Host("b").Command(t.Context(), "ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %q: %v: %s", args, err, out)
		}
		carry()
		if size := carry(); size < mtu*8/10 || size > mtu+14 {
			t.Errorf("where %d bytes arrive, packets have %d", mtu, size)
		}
	}
}
