package controller

import (
	"encoding/binary"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/controller/networkapi"
	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/internal/logtest"
	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/store/memstore"
)

// saved waits until everything known of hosts is stored.
func (p *program) saved(t *testing.T) {
	t.Helper()
	eventually(t, "hosts are stored", func() bool {
		_, text := p.ask(t, http.MethodGet, "/metrics", "")
		return strings.Contains(text, "sluice_network_hosts_unsaved 0\n")
	})
}

// TestHostsOutliveTheController checks that a restarted controller knows the hosts, however it
// ended and although no switch is connected. An entry that cannot be read affects only itself, and
// causes one line in the log.
func TestHostsOutliveTheController(t *testing.T) {
	live.Test(t)
	t.Parallel()
	binary := selfbuild.Binary(t)
	dir := filepath.Join(t.TempDir(), "sluice")
	c := startProgram(t, binary, dir)
	c.ready(t, dir)
	way := newPath()
	stop := way.connect(t, c.switches)
	way.carries(t, c, 1000)
	var before []networkapi.Host
	c.read(t, "/api/v1/network/hosts", &before)
	c.saved(t)
	for _, how := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		c.end(t, how)
		stop()
		c = startProgram(t, binary, dir)
		c.ready(t, dir)
		var after []networkapi.Host
		c.read(t, "/api/v1/network/hosts", &after)
		if len(after) != 2 || !reflect.DeepEqual(places(after), places(before)) {
			t.Errorf("after %v: %+v, want %+v", how, after, before)
		}
		stop = way.connect(t, c.switches)
		way.carries(t, c, 1001)
	}
	c.calm(t)
}

// places returns hosts without the times at which they were seen.
func places(all []networkapi.Host) []networkapi.Host {
	out := make([]networkapi.Host, len(all))
	for i, h := range all {
		h.Seen = time.Time{}
		out[i] = h
	}
	return out
}

func hostNote(i int) (n network.HostNote) {
	n.MAC = openflow.MAC{2}
	binary.BigEndian.PutUint32(n.MAC[2:], uint32(i))
	n.VLAN = uint16(i % 3)
	n.At = network.PortRef{Switch: openflow.DatapathID(1 + i/16384), Port: uint32(1 + i%48)}
	n.IPs = []netip.Addr{netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), netip.AddrFrom16([16]byte{0xfe, 0x80, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)})}
	n.Router, n.Again, n.Seen = hosts.NotRouter, i%2 == 0, time.Unix(1_800_000_000, 0).UTC()
	return n
}

// TestAllHostsAreStored checks that as many hosts as the table can hold are stored and read, and
// that removed ones are not.
func TestAllHostsAreStored(t *testing.T) {
	cfg := testConfig(t, "embedded")
	s, err := openStore(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := &Controller{store: s, log: slog.New(slog.DiscardHandler)}
	var all []network.HostNote
	for i := range hosts.DefaultMaxHosts {
		all = append(all, hostNote(i))
	}
	if err := c.storeHosts(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	gone := hostNote(7)
	gone.Gone = true
	if err := c.storeHosts(t.Context(), []network.HostNote{gone}); err != nil {
		t.Fatal(err)
	}
	records, err := c.loadHosts(t.Context())
	if err != nil || len(records) != hosts.DefaultMaxHosts-1 {
		t.Fatalf("%d hosts read, %v", len(records), err)
	}
	for _, r := range records {
		i := int(binary.BigEndian.Uint32(r.MAC[2:]))
		if want := hostNote(i).Record; !reflect.DeepEqual(r, want) {
			t.Fatalf("read %+v, want %+v", r, want)
		}
	}
}

// TestUnreadableHostsAreSkipped checks that entries that are damaged, or of a later version, are
// kept and reported in one line, and that the others are read.
func TestUnreadableHostsAreSkipped(t *testing.T) {
	var log logtest.Log
	c := &Controller{store: memstore.New(), log: slog.New(slog.NewTextHandler(&log, nil))}
	if err := c.storeHosts(t.Context(), []network.HostNote{hostNote(1), hostNote(2)}); err != nil {
		t.Fatal(err)
	}
	bad := map[string]string{
		"network/hosts/02:00:00:00:00:09/0": "\x00\x01", "network/hosts/02:00:00:00:00:08/0": `{"format":2,"place":"elsewhere"}`,
		"network/hosts/nobody": `{}`, "network/hosts/02:00:00:00:00:07/4096": `{"format":1,"switch":"1","port":1}`,
	}
	for key, value := range bad {
		if err := c.store.Put(t.Context(), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	records, err := c.loadHosts(t.Context())
	if err != nil || len(records) != 2 {
		t.Errorf("%d hosts read, %v", len(records), err)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "number=4") {
		t.Errorf("log:\n%s", text)
	}
	if entries, err := c.store.List(t.Context(), hostPrefix); err != nil || len(entries) != 6 {
		t.Errorf("%d entries are left, %v", len(entries), err)
	}
}

// FuzzStoredHost checks that a stored value is refused, or is a host that the table accepts or
// ignores and that is stored again as it was read.
func FuzzStoredHost(f *testing.F) {
	c := &Controller{store: memstore.New(), log: slog.New(slog.DiscardHandler)}
	for i := range 3 {
		n := hostNote(i)
		value, err := json.Marshal(storedHost{Format: hostFormat, Switch: n.At.Switch, Port: n.At.Port, IPs: n.IPs, Seen: n.Seen})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(hostKey(n.MAC, n.VLAN), value)
	}
	f.Add("network/hosts/02:00:00:00:00:01/0", []byte(`{"format":1,"switch":"0000000000000001","port":1,"ips":["","fe80::1%eth0","::ffff:10.0.0.1"],"seen":"0001-01-01T00:00:00Z"}`))
	f.Add("network/hosts/", []byte(`null`))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		r, err := readHost(key, value)
		if err != nil {
			return
		}
		now := time.Now()
		table := hosts.New(hosts.Options{Edge: func(network.PortRef) bool { return true }, TrackChanges: true})
		table.Restore([]network.HostRecord{r}, now)
		for _, h := range table.All() {
			if h.MAC != r.MAC || h.At != r.At || h.Seen.After(now) || len(h.IPs) > len(r.IPs) {
				t.Errorf("%+v was restored as %+v", r, h)
			}
		}
		table.Expire(now.Add(24 * time.Hour))
		if table.Len() != 0 {
			t.Errorf("%+v stays for ever", r)
		}
		if err := c.storeHosts(t.Context(), []network.HostNote{{Record: r}}); err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
		e, err := c.store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := readHost(key, e.Value); err != nil || again.At != r.At || !slices.Equal(again.IPs, r.IPs) || !again.Seen.Equal(r.Seen) {
			t.Errorf("%+v was stored as %+v: %v", r, again, err)
		}
	})
}
