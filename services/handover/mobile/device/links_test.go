package device

import (
	"context"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/nettest"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile/lease"
)

func leaseWith(address string) lease.Lease {
	now := time.Now()
	return lease.Lease{
		Address: netip.PrefixFrom(netip.MustParseAddr(address), 24), Server: netip.MustParseAddr("10.8.0.1"),
		Router: netip.MustParseAddr("10.8.0.1"), DNS: []netip.Addr{netip.MustParseAddr("10.8.0.2")}, Domain: "example.org", MTU: 1400,
		Granted: now, Renew: now.Add(30 * time.Minute), Rebind: now.Add(50 * time.Minute), Expires: now.Add(time.Hour),
	}
}

// namespace moves the test's thread into a new network namespace.
func namespace(t *testing.T) {
	t.Helper()
	nettest.Namespace(t)
	ip(t, "link", "set", "lo", "up")
}

// enter returns a function that moves another goroutine's thread into the test's namespace.
func enter(t *testing.T) func() {
	t.Helper()
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return func() {
		runtime.LockOSThread() // ends with the goroutine
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			t.Error(err)
		}
	}
}

// ip runs ip(8), the oracle of these tests, and returns its output.
func ip(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ip", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %v: %v: %s", args, err, out)
	}
	return string(out)
}

// picture returns what ip(8) shows of the addresses and routes of a link.
func picture(t *testing.T, link string) string {
	t.Helper()
	var lines []string
	for _, args := range [][]string{{"-o", "-4", "addr", "show", "dev", link}, {"-o", "-6", "addr", "show", "dev", link, "scope", "global"}, {"-4", "route", "show", "table", "all", "dev", link}, {"-6", "route", "show", "table", "main", "dev", link}} {
		for line := range strings.SplitSeq(ip(t, args...), "\n") {
			if fields := strings.Fields(line); len(fields) > 0 {
				lines = append(lines, strings.Join(fields, " "))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestAdoptedLinkIsPutBack(t *testing.T) {
	namespace(t)
	ip(t, "link", "add", "m0", "type", "veth", "peer", "name", "n0")
	ip(t, "link", "set", "n0", "up")
	ip(t, "link", "set", "m0", "up")
	ip(t, "addr", "add", "192.0.2.7/24", "brd", "+", "dev", "m0", "label", "m0:x")
	ip(t, "addr", "add", "192.0.2.8/24", "dev", "m0")
	ip(t, "addr", "add", "198.51.100.1", "peer", "198.51.100.2", "dev", "m0")
	ip(t, "addr", "add", "2001:db8::7/64", "dev", "m0", "nodad")
	ip(t, "route", "add", "default", "via", "192.0.2.1", "dev", "m0", "metric", "77")
	ip(t, "route", "add", "203.0.113.0/24", "dev", "m0", "scope", "link")
	ip(t, "route", "add", "203.0.112.0/24", "via", "203.0.113.9", "dev", "m0", "src", "192.0.2.8")
	ip(t, "route", "add", "10.0.0.0/8", "via", "192.0.2.2", "dev", "m0", "table", "99")
	ip(t, "-6", "route", "add", "2001:db8:1::/48", "via", "2001:db8::1", "dev", "m0")
	before := picture(t, "m0")

	dir := t.TempDir()
	j, err := OpenJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // adopting again, after a crash or a new address, changes nothing
		if err := j.Adopt("m0"); err != nil {
			t.Fatal(err)
		}
		if got := picture(t, "m0"); got != "" {
			t.Errorf("it still has:\n%s", got)
		}
	}
	if err := j.Close(); err != nil { // killed here
		t.Fatal(err)
	}
	if j, err = OpenJournal(dir); err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for range 2 {
		if err := j.Undo(nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := picture(t, "m0"); got != before {
		t.Errorf("it has:\n%s\nbefore:\n%s", got, before)
	}
	if j.Len() != 0 {
		t.Errorf("%d changes are left", j.Len())
	}
}

func TestLinkThatWasDownIsSetDown(t *testing.T) {
	namespace(t)
	ip(t, "link", "add", "m0", "type", "veth", "peer", "name", "n0")
	ip(t, "link", "set", "n0", "up")
	j, err := OpenJournal(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	up := func() bool {
		links, err := Links("m0")
		if err != nil {
			t.Fatal(err)
		}
		return links[0].Up
	}
	if err := j.Adopt("m0"); err != nil || !up() {
		t.Fatalf("up %v, %v", up(), err)
	}
	if err := j.Release("m0"); err != nil || up() {
		t.Fatalf("up %v, %v", up(), err)
	}
	// A link that is gone needs nothing.
	if err := j.Adopt("m0"); err != nil {
		t.Fatal(err)
	}
	ip(t, "link", "del", "m0")
	if err := j.Undo(nil); err != nil || j.Len() != 0 {
		t.Errorf("%d changes are left: %v", j.Len(), err)
	}
}

func TestConfigure(t *testing.T) {
	namespace(t)
	ip(t, "link", "add", "v0", "type", "veth", "peer", "name", "w0")
	ip(t, "link", "set", "w0", "up")
	ip(t, "link", "set", "v0", "up")
	l := leaseWith("10.8.0.10")
	l.Routes = []lease.Route{{To: netip.MustParsePrefix("172.16.0.0/12"), Via: netip.MustParseAddr("10.9.9.9")}, {To: netip.MustParsePrefix("192.0.2.0/24")}}
	for range 2 {
		if err := Configure("v0", l, 40); err != nil {
			t.Fatal(err)
		}
	}
	got := ip(t, "-4", "route", "show", "dev", "v0")
	for _, want := range []string{
		"default via 10.8.0.1 proto dhcp src 10.8.0.10 metric 40 onlink mtu 1400",
		"172.16.0.0/12 via 10.9.9.9 proto dhcp src 10.8.0.10 metric 40 onlink mtu 1400",
		"192.0.2.0/24 proto dhcp scope link src 10.8.0.10 metric 40 mtu 1400",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no route %q in:\n%s", want, got)
		}
	}
	if got := ip(t, "-4", "addr", "show", "dev", "v0"); !strings.Contains(got, "valid_lft 359") && !strings.Contains(got, "valid_lft 3600") {
		t.Errorf("the address does not end with the lease:\n%s", got)
	}
	// Another lease replaces all of the first.
	if err := Configure("v0", leaseWith("10.8.0.20"), 41); err != nil {
		t.Fatal(err)
	}
	if got := picture(t, "v0"); strings.Contains(got, "10.8.0.10") || strings.Contains(got, "metric 40") || strings.Contains(got, "172.16") {
		t.Errorf("of the first lease is left:\n%s", got)
	}
	if err := Unconfigure("v0"); err != nil {
		t.Fatal(err)
	}
	if got := ip(t, "-4", "addr", "show", "dev", "v0"); strings.Contains(got, "inet") {
		t.Errorf("addresses are left:\n%s", got)
	}
	if err := Configure("none", l, 1); err == nil {
		t.Error("an interface that does not exist was configured")
	}
}

func TestSetNeighbour(t *testing.T) {
	namespace(t)
	ip(t, "link", "add", "v0", "type", "veth", "peer", "name", "w0")
	ip(t, "link", "set", "w0", "up")
	ip(t, "link", "set", "v0", "up")
	ip(t, "addr", "add", "10.8.0.10/24", "dev", "v0")
	router := netip.MustParseAddr("10.8.0.1")
	old, now := openflow.MAC{2, 0, 0, 0, 0, 1}, openflow.MAC{2, 0, 0, 0, 0, 2}
	if err := SetNeighbour("v0", router, now); err != nil {
		t.Fatal(err)
	}
	if got := ip(t, "neigh", "show", "dev", "v0"); strings.Contains(got, "10.8.0.1") {
		t.Errorf("an entry that nobody asked for: %s", got)
	}
	ip(t, "neigh", "add", "10.8.0.1", "lladdr", old.String(), "dev", "v0", "nud", "reachable")
	if err := SetNeighbour("v0", router, now); err != nil {
		t.Fatal(err)
	}
	if got := ip(t, "neigh", "show", "dev", "v0"); !strings.Contains(got, "lladdr "+now.String()) {
		t.Errorf("the router is at %s", got)
	}
}

func TestWatch(t *testing.T) {
	namespace(t)
	ip(t, "link", "add", "m0", "address", "02:00:00:00:00:01", "type", "veth", "peer", "name", "n0")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen := make(chan Link, 64)
	inside := enter(t)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		inside()
		if err := Watch(ctx, []string{"m0", "none"}, func(l Link) { seen <- l }); err != nil {
			t.Error(err)
		}
	}()
	until := func(what string, ok func(Link) bool) Link {
		t.Helper()
		for {
			select {
			case l := <-seen:
				if ok(l) {
					return l
				}
			case <-ctx.Done():
				t.Fatalf("never: %s", what)
			}
		}
	}
	first := until("the first state", func(l Link) bool { return l.Name == "m0" })
	if !first.Present || first.Up || first.Carrier || first.MAC != (openflow.MAC{2, 0, 0, 0, 0, 1}) || first.Index == 0 || first.Type != Ethernet {
		t.Errorf("first %+v", first)
	}
	until("one that is not there", func(l Link) bool { return l.Name == "none" && !l.Present })
	ip(t, "link", "set", "n0", "up")
	ip(t, "link", "set", "m0", "up")
	up := until("carrier", func(l Link) bool { return l.Up && l.Carrier })
	ip(t, "link", "set", "n0", "down")
	ip(t, "link", "set", "n0", "up")
	until("a flap", func(l Link) bool { return l.Carrier && l.Flaps >= up.Flaps+2 })
	ip(t, "link", "set", "m0", "down", "name", "p0")
	until("its name is gone", func(l Link) bool { return l.Name == "m0" && !l.Present })
	ip(t, "link", "set", "p0", "name", "m0")
	until("its name is back", func(l Link) bool { return l.Present })
	ip(t, "link", "del", "m0")
	until("it is gone", func(l Link) bool { return l.Name == "m0" && !l.Present })
	cancel()
	<-watching
}

func TestParseRadio(t *testing.T) {
	const wireless = `Inter-| sta-|   Quality        |   Discarded packets               | Missed | WE
 face | tus | link level noise |  nwid  crypt   frag  retry   misc | beacon | 22
 wlan0: 0000   54.  -56.  -256        0      0      0      0     12        0
  wlp1: 0000   70   -40   -256        0      0      0      0      0        0
 odd:   0000   54.   56.  -256
 short: 0000
`
	for name, want := range map[string]int{"wlan0": -56, "wlp1": -40, "odd": 0, "short": 0, "eth0": 0} {
		got, ok := parseWireless([]byte(wireless), name)
		if got != want || ok != (want != 0) {
			t.Errorf("%s: %d, %v; want %d", name, got, ok, want)
		}
	}
	station := []byte{
		19, 1, 0, 0, // NL80211_CMD_NEW_STATION
		8, 0, 3, 0, 7, 0, 0, 0, // ifindex 7
		10, 0, 6, 0, 2, 0, 0, 0, 0, 0x11, 0, 0, // the access point
		20, 0, 21, 0x80, // NL80211_ATTR_STA_INFO, nested
		8, 0, 1, 0, 5, 0, 0, 0, // inactive time
		5, 0, 7, 0, 0xc4, 0, 0, 0, // signal -60
	}
	got, err := parseStation(station)
	if want := (Radio{Signal: -60, AP: openflow.MAC{2, 0, 0, 0, 0, 0x11}}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if _, err := parseStation(station[:3]); err == nil {
		t.Error("a message of three bytes was read")
	}
}

func FuzzParseLinkAndRadio(f *testing.F) {
	f.Add([]byte{19, 1, 0, 0, 8, 0, 3, 0, 7, 0, 0, 0})
	f.Add(append(make([]byte, 16), 8, 0, 3, 0, 'a', 0, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, err := parseLink(b); err == nil && !l.Present {
			t.Errorf("%+v", l)
		}
		if _, err := parseStation(b); err != nil {
			return
		}
		parseWireless(b, "wlan0")
	})
}

func TestLinksAgreeWithNetlink(t *testing.T) {
	namespace(t)
	ip(t, "link", "add", "m0", "mtu", "1300", "type", "veth", "peer", "name", "n0")
	links, err := Links("m0", "n0", "none")
	if err != nil || len(links) != 3 {
		t.Fatal(links, err)
	}
	for _, l := range links[:2] {
		want, err := netlink.LinkByName(l.Name)
		if err != nil {
			t.Fatal(err)
		}
		a := want.Attrs()
		if l.Index != a.Index || l.MTU != a.MTU || l.Up != (a.Flags&net.FlagUp != 0) || l.MAC.String() != a.HardwareAddr.String() {
			t.Errorf("%+v, netlink says %+v", l, a)
		}
	}
	if links[2].Present {
		t.Errorf("%+v", links[2])
	}
}
