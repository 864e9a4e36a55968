package mobile

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/listen"
	"github.com/sluice-net/sluice/openflow"
)

// controlled returns a daemon with the real clock and its control socket.
func controlled(t *testing.T, edit func(*Config)) (*world, *Client) {
	t.Helper()
	w := newWorld(t, edit)
	socket := filepath.Join(t.TempDir(), "s")
	l, err := listen.Unix(socket, -1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	go func() { w.done <- w.d.run(ctx, l) }()
	t.Cleanup(w.end)
	c := Dial(socket)
	t.Cleanup(c.Close)
	return w, c
}

// until polls the daemon until its status meets the condition.
func until(t *testing.T, c *Client, what string, ok func(Status) bool) Status {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		s, err := c.Status(t.Context())
		if err == nil && ok(s) {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("never %s: %+v, %v", what, s, err)
		}
	}
}

func TestControl(t *testing.T) {
	_, c := controlled(t, func(c *Config) { c.Device = "phone" })
	s := until(t, c, "joined", func(s Status) bool { return s.Active == "a" })
	if s.Device != "phone" || s.Lease == nil || s.VNI.Address.String() != "10.8.0.10/24" || len(s.Interfaces) != 2 || !s.Interfaces[0].Sends || !s.Interfaces[0].Joined {
		t.Errorf("status %+v", s)
	}
	m, err := c.Move(t.Context(), MoveRequest{Interface: "b", Hold: -1})
	if err != nil || m.From != "a" || m.To != "b" || m.Why != "asked for by command" {
		t.Errorf("%+v, %v", m, err)
	}
	if s := until(t, c, "moved", func(s Status) bool { return s.Active == "b" }); s.Requested != "b" || !s.RequestedUntil.IsZero() {
		t.Errorf("status %+v", s)
	}
	if err := c.Auto(t.Context()); err != nil {
		t.Error(err)
	}
	if s := until(t, c, "free", func(s Status) bool { return s.Requested == "" }); s.Counters.Moves != 2 {
		t.Errorf("status %+v", s)
	}
	if _, err := c.Move(t.Context(), MoveRequest{Interface: "x"}); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("an unknown interface: %v", err)
	}
}

func TestControlRefusesNonsense(t *testing.T) {
	_, c := controlled(t, nil)
	for _, body := range []string{"", "{", `{"interface":"a","colour":"red"}`, `{"interface":1}`, `{} {}`, `{"interface":"a","hold_seconds":1e300}`, `{"interface":"` + strings.Repeat("x", maxBody) + `"}`} {
		resp, err := c.http.Post("http://mobile/v1/move", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest || resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%.40q: %s", body, resp.Status)
		}
	}
}

func TestNoDaemon(t *testing.T) {
	c := Dial(filepath.Join(t.TempDir(), "s"))
	if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "sluice mobile run") {
		t.Errorf("error %v", err)
	}
}

// source is a controller that gives the orders of a test.
type source struct {
	orders  chan Order
	reports chan string
}

func (s *source) Follow(ctx context.Context, connected func(), f func(Order)) error {
	connected()
	for {
		select {
		case o := <-s.orders:
			f(o)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *source) Report(_ context.Context, o Order, m Move, err error) error {
	text := "to " + m.To
	if err != nil {
		text = err.Error()
	}
	s.reports <- text
	return nil
}

func TestOrders(t *testing.T) {
	src := &source{orders: make(chan Order), reports: make(chan string, 1)}
	w, c := controlled(t, func(c *Config) { c.Orders = src })
	until(t, c, "joined", func(s Status) bool { return s.Active == "a" && s.Orders == "connected" })
	for _, x := range []struct {
		name string
		mac  openflow.MAC
		want string
	}{
		{"by its address", openflow.MAC{2, 0, 0, 0, 0, 2}, "to b"},
		{"any other", openflow.MAC{}, "to a"},
		{"the virtual one's: any other", w.d.cfg.VNIMAC, "to b"},
		{"nobody's", openflow.MAC{2, 0, 0, 0, 0, 7}, "the daemon has no such interface with address 02:00:00:00:00:07"},
	} {
		src.orders <- Order{ID: 1, MAC: x.mac, Why: "load", Hold: time.Minute}
		if got := <-src.reports; got != x.want {
			t.Errorf("%s: %q, want %q", x.name, got, x.want)
		}
	}
	s := until(t, c, "moved", func(s Status) bool { return s.Active == "b" })
	if last := s.Moves[len(s.Moves)-1]; last.Why != "ordered by the network: load" || s.Requested != "b" || s.RequestedUntil.IsZero() {
		t.Errorf("%+v, wish %q until %v", last, s.Requested, s.RequestedUntil)
	}
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	for name, edit := range map[string]func(*Config){
		"no interface":         func(c *Config) { c.Interfaces = nil },
		"one twice":            func(c *Config) { c.Interfaces = append(c.Interfaces, c.Interfaces[0]) },
		"one named as the VNI": func(c *Config) { c.Interfaces[0].Name = "v" },
		"no name":              func(c *Config) { c.VNI = "" },
		"a multicast address":  func(c *Config) { c.VNIMAC = openflow.MAC{1} },
		"no folder":            func(c *Config) { c.StateDir = "" },
	} {
		c := Config{
			VNI: "v", VNIMAC: openflow.MAC{2}, StateDir: "/x", Interfaces: []Interface{{Name: "a"}},
		}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		edit(&c)
		if c.Validate() == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
