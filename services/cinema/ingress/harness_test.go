package ingress

import (
	"log/slog"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
	"github.com/sluice-net/sluice/services/cinema/media"
)

// sent is a datagram that was sent.
type sent struct {
	to netip.AddrPort
	b  []byte
	at time.Time
}

// sink is an output that keeps what is sent.
type sink struct {
	mu     sync.Mutex
	all    []sent
	closed bool
	fails  error
}

func (s *sink) send(b []byte, to netip.AddrPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails != nil {
		return s.fails
	}
	s.all = append(s.all, sent{to, slices.Clone(b), time.Now()})
	return nil
}

func (s *sink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// to returns what has been sent to an address so far.
func (s *sink) to(addr netip.AddrPort) (out []sent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.all {
		if x.to == addr {
			out = append(out, x)
		}
	}
	return out
}

func (s *sink) failWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = err
}

// sinks holds the outputs of a gateway's channels, by port.
type sinks struct {
	mu sync.Mutex
	by map[uint16]*sink
}

func (s *sinks) open(_ netip.Addr, port uint16) (output, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := &sink{}
	s.by[port] = x
	return x, nil
}

func (s *sinks) of(number uint16) *sink {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.by[gatewayapi.SourcePort(number)]
}

var (
	mediaAddr = netip.MustParseAddr("198.19.255.1")
	mediaTo   = netip.AddrPortFrom(mediaAddr, gatewayapi.MediaPort)
)

// start runs a gateway on the loopback interface with sinks as outputs.
func start(t *testing.T, change func(*Config)) (*Gateway, *sinks, *gatewayapi.Ingress) {
	t.Helper()
	all := &sinks{by: map[uint16]*sink{}}
	cfg := Config{
		Log: slog.New(slog.DiscardHandler), Version: "v1", Listen: "127.0.0.1:0", Data: netip.MustParseAddr("192.0.2.1"),
		Public: netip.MustParseAddrPort("127.0.0.1:0"), MaxChannels: 4, openOutput: all.open,
	}
	if change != nil {
		change(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	c, err := gatewayapi.NewIngress("http://"+g.ControlAddr().String(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return g, all, c
}

// needFFmpeg skips a test if ffmpeg is missing.
func needFFmpeg(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("ffmpeg is not installed: scripts/deps.sh demo does that")
	}
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(2 * time.Minute); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// state returns what a gateway reports of a channel.
func state(t *testing.T, g *Gateway, name string) gatewayapi.ChannelState {
	t.Helper()
	c := g.channel(name)
	if c == nil {
		t.Fatalf("the gateway does not have %s", name)
	}
	return c.state()
}

// fault returns what is wrong with a channel. It ignores an excess, because a producer on a
// busy machine may send late packets all at once.
func fault(s gatewayapi.ChannelState) string {
	if strings.Contains(s.Error, "datagrams were dropped") {
		return ""
	}
	return s.Error
}

// events returns the kinds of a channel's events so far.
func events(g *Gateway, name string) (what []string) {
	all, _ := g.server.Records()
	for _, e := range all {
		if e.Channel == name {
			what = append(what, e.What)
		}
	}
	return what
}

// hashOf returns the hash of a password.
func hashOf(t *testing.T, password string) string {
	t.Helper()
	h, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(h)
}

// parsed parses what was sent.
func parsed(t *testing.T, all []sent) (out []media.Packet) {
	t.Helper()
	for _, x := range all {
		p, err := media.Parse(x.b)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}
