package drift

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/internal/nettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quiet() *Counts { return NewCounts(slog.New(slog.DiscardHandler)) }

// endless is a source that always has a notification. It counts how often it was drained.
type endless struct{ drained int }

func (*endless) await() error { return nil }
func (e *endless) drain() error {
	e.drained++
	return nil
}
func (*endless) Close() error { return nil }

// TestNotificationsWithoutEnd checks that notifications without end cause a bounded number of
// comparisons, and do not keep other things from being compared.
func TestNotificationsWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var routes, polled int
		k := &Keeper{
			counts: quiet(), due: make([]time.Time, 2), sources: map[int]source{Routes.protocol: &endless{}},
			things: []Thing{
				{Name: "routes", After: []Notification{Routes}, Restore: func(context.Context) (int, error) { routes++; return 0, nil }},
				{Name: "setting", Interval: PollInterval, Restore: func(context.Context) (int, error) { polled++; return 0, nil }},
			},
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := k.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if most := burst + 60*perSecond + 2; routes > most || routes < burst {
			t.Errorf("%d comparisons in a minute, want at most %d", routes, most)
		}
		if polled < 100 {
			t.Errorf("the setting was compared %d times in a minute", polled)
		}
	})
}

// TestSteadyComparisons checks that things are compared without notifications, each at its interval,
// and that Run returns when the end interrupts a comparison.
func TestSteadyComparisons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var routes, setting int
		stuck := make(chan struct{})
		counts := quiet()
		k, err := Open(counts,
			Thing{Name: "routes", Restore: func(context.Context) (int, error) { routes++; return 1, nil }},
			Thing{Name: "setting", Interval: PollInterval, Restore: func(context.Context) (int, error) { setting++; return 0, errors.New("unreadable") }},
			Thing{Name: "stuck", Interval: 5 * time.Minute, Restore: func(ctx context.Context) (int, error) { close(stuck); <-ctx.Done(); return 1, ctx.Err() }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- k.Run(ctx) }()
		<-stuck
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if routes != 9 && routes != 10 || setting != 599 && setting != 600 {
			t.Errorf("in five minutes routes were compared %d times, the setting %d times", routes, setting)
		}
		list := counts.List()
		if len(list) != 2 || list[0].Thing != "routes" || list[0].Times != uint64(routes) || list[1].Error != "unreadable" || list[1].Times != 0 || Total(list) != uint64(routes) {
			t.Errorf("counts: %+v", list)
		}
	})
}

// TestCounts checks what is counted, and that a program that changes a thing all the time does not
// fill the log.
func TestCounts(t *testing.T) {
	var log bytes.Buffer
	c := NewCounts(slog.New(slog.NewTextHandler(&log, nil)))
	now := time.Unix(1000, 0)
	c.Record("as declared", 0, nil, now)
	for range 3600 {
		now = now.Add(time.Second)
		c.Record("table", 1, nil, now)
	}
	if n := strings.Count(log.String(), "\n"); n != 8 || !strings.Contains(log.String(), "thing=table times=3001") {
		t.Errorf("%d lines in an hour, want 3 at once and one every ten minutes: %s", n, &log)
	}
	log.Reset()
	c.Record("rule", 2, errors.New("refused"), now)
	if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "refused") {
		t.Errorf("said %q", &log)
	}
	c.Record("rule", 1, nil, now.Add(time.Second))
	c.Record("rule", 0, errors.New("unreadable"), now.Add(time.Minute))
	want := []Count{{"rule", 3, now.Add(time.Second), "unreadable"}, {"table", 3600, now, ""}}
	if got := c.List(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("counts are %v, want %v", got, want)
	}
	c.Record("rule", 0, nil, now.Add(time.Hour))
	if got := c.List()[0]; got.Error != "" || got.Times != 3 {
		t.Errorf("after it was found as declared: %+v", got)
	}
	if err := testutil.CollectAndCompare(NewCollector("test", c.List), strings.NewReader(`
# HELP sluice_test_drift_total Differences of what the program has declared on its machine from the declarations, by thing.
# TYPE sluice_test_drift_total counter
sluice_test_drift_total{thing="rule"} 3
sluice_test_drift_total{thing="table"} 3600
`)); err != nil {
		t.Error(err)
	}
	for i := range 10 * maxThings {
		c.Record(fmt.Sprint("thing ", i), 1, nil, now)
	}
	if n := len(c.List()); n != maxThings {
		t.Errorf("%d things are counted, want %d", n, maxThings)
	}
}

func TestSysctl(t *testing.T) {
	file := filepath.Join(t.TempDir(), "setting")
	s := Sysctl(file, "1")
	for _, c := range []struct {
		before      string
		differences int
		after       string
	}{{"1\n", 0, "1\n"}, {"0\n", 1, "1"}, {"", 1, "1"}} {
		if err := os.WriteFile(file, []byte(c.before), 0o600); err != nil {
			t.Fatal(err)
		}
		n, err := s.Restore(t.Context())
		if now, _ := os.ReadFile(file); n != c.differences || err != nil || string(now) != c.after {
			t.Errorf("%q: %d differences, %v, and is %q", c.before, n, err, now)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Restore(t.Context()); n != 0 || err != nil {
		t.Errorf("without the file: %d differences, %v", n, err)
	}
	if s := Sysctl("/proc/sys/net/mptcp/pm_type", "1"); s.Name != "net.mptcp.pm_type" {
		t.Errorf("named %s", s.Name)
	}
}

// TestNotificationsOfTheKernel checks that each kind of change in the kernel causes a comparison,
// and one of another kind does not.
func TestNotificationsOfTheKernel(t *testing.T) {
	for name, c := range map[string]struct {
		after  Notification
		change []string
	}{
		"links":           {Links, []string{"ip", "link", "set", "lo", "mtu", "1500"}},
		"neighbours":      {Neighbours, []string{"ip", "neigh", "add", "10.0.0.9", "lladdr", "02:00:00:00:00:01", "dev", "x"}},
		"traffic control": {TrafficControl, []string{"tc", "qdisc", "add", "dev", "x", "clsact"}},
		"addresses":       {Addresses, []string{"ip", "addr", "add", "10.0.0.1/24", "dev", "x"}},
		"IPv6 addresses":  {Addresses6, []string{"ip", "addr", "add", "fd00::1/64", "dev", "x", "nodad"}},
		"routes":          {Routes, []string{"ip", "route", "add", "10.9.0.0/24", "dev", "x"}},
		"rules":           {Rules, []string{"ip", "rule", "add", "from", "10.0.0.1", "lookup", "100"}},
		"rules of IPv6":   {Rules6, []string{"ip", "-6", "rule", "add", "from", "fd00::1", "lookup", "100"}},
		"nftables":        {NFTables, []string{"nft", "flush", "ruleset"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := nettest.NewHost(t)
			h.Must(func() error {
				attrs := netlink.NewLinkAttrs()
				attrs.Name = "x"
				if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "y"}); err != nil {
					return err
				}
				link, err := netlink.LinkByName("x")
				if err != nil {
					return err
				}
				return netlink.LinkSetUp(link)
			})
			if name == "nftables" {
				h.Run("nft", "add", "table", "inet", "others")
			}
			compared := make(chan struct{}, 100)
			var k *Keeper
			h.Must(func() (err error) {
				k, err = Open(quiet(), Thing{Name: name, After: []Notification{c.after}, Interval: time.Hour, Restore: func(context.Context) (int, error) {
					compared <- struct{}{}
					return 0, nil
				}})
				return err
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- k.Run(ctx) }()
			h.Run(c.change[0], c.change[1:]...)
			select {
			case <-compared:
			case <-time.After(30 * time.Second):
				t.Errorf("%v causes no comparison", c.change)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLostNotifications checks that more notifications than a socket holds are no error.
func TestLostNotifications(t *testing.T) {
	h := nettest.NewHost(t)
	var s *socket
	h.Must(func() (err error) {
		s, err = subscribe(Rules.protocol, []uint32{Rules.group})
		return err
	})
	defer s.Close()
	batch := filepath.Join(t.TempDir(), "rules")
	var text strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&text, "rule add from 10.0.%d.%d lookup 100\n", i/250, i%250)
	}
	if err := os.WriteFile(batch, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	h.Run("ip", "-batch", batch)
	if err := s.drain(); err != nil {
		t.Errorf("%v: want that notifications may be lost", err)
	}
}
