package nameservice

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrs"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
	"github.com/sluice-net/sluice/services/mobilityfirst/replicas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a service until the test ends or stop is called.
func start(t *testing.T, o Options) (s *Service, stop func()) {
	t.Helper()
	o.Dir = t.TempDir()
	s = New(o)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	ended := false
	stop = func() {
		if cancel(); !ended {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		ended = true
	}
	t.Cleanup(stop)
	eventually(t, "the service runs", func() bool { return s.Status().Listen != "" })
	return s, stop
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); pause.For(5*time.Millisecond, "the service does it") {
		if time.Since(began) > time.Minute {
			t.Fatalf("not so: %s", what)
		}
	}
}

// A domain that does not answer is shown as silent, with how much it has to be told; it has been told all when it is there.
func TestStatus(t *testing.T) {
	west := replicas.Domain{Name: "west", Addr: netip.MustParseAddrPort("127.78.0.1:5001")}
	east := replicas.Domain{Name: "east", Addr: netip.MustParseAddrPort("127.78.0.2:5001")}
	o := Options{Self: "west", Domains: []replicas.Domain{west, east}, Replicas: 2}
	s, _ := start(t, o)
	c, err := gnrs.Dial(west.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := record.Sign(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), 1, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Write(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other is behind", func() bool {
		d := s.Status().Domains
		return len(d) == 2 && d[0].Self && !d[1].Self && d[1].Silent && d[1].Behind == 1
	})
	o.Self = "east"
	other, stop := start(t, o)
	eventually(t, "the other has it", func() bool {
		d := s.Status().Domains[1]
		return other.Status().Names == 1 && d.Behind == 0 && !d.Silent && d.RoundTrip > 0
	})
	stop()
	if st := other.Status(); st.Listen != "" || st.Names != 0 {
		t.Errorf("after its end: %+v", st)
	}
	if _, err := c.Lookup(t.Context(), frame.GUID{1}); err == nil {
		t.Error("a name of nobody is found")
	}
	if s.Status().Lookups == 0 {
		t.Error("no look-ups")
	}
}

// Where a service is asked is one thing: its domain's address, or what it is told.
func TestAt(t *testing.T) {
	at := netip.MustParseAddrPort("127.0.0.1:5001")
	domains := []replicas.Domain{{Name: "west", Addr: at}}
	for name, x := range map[string]struct {
		o    Options
		want netip.AddrPort
		err  bool
	}{
		"alone":             {Options{Listen: at}, at, false},
		"its domain's":      {Options{Self: "west", Domains: domains}, at, false},
		"both":              {Options{Listen: at, Self: "west", Domains: domains}, at, false},
		"another":           {Options{Listen: netip.MustParseAddrPort("127.0.0.2:5001"), Self: "west", Domains: domains}, netip.AddrPort{}, true},
		"none of these":     {Options{Self: "east", Domains: domains}, netip.AddrPort{}, true},
		"of no domains":     {Options{Listen: at, Self: "west"}, netip.AddrPort{}, true},
		"domains of nobody": {Options{Domains: domains}, netip.AddrPort{}, true},
	} {
		if got, err := x.o.At(); got != x.want || errors.Is(err, replicas.ErrDomains) != x.err {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
