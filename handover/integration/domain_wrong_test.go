package integration

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/handover/domain"
	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/pki"
)

func token(t testing.TB) string {
	t.Helper()
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b[:])
}

// joinsAs gets an address for a phone and says how long it took.
func (x *operator) joinsAs(p *phone, r *radio) time.Duration {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), patience)
	defer cancel()
	began := time.Now()
	if err := p.join(ctx, r, p.macs[0]); err != nil {
		x.t.Fatalf("%s in %s: %v", p.id, x.name, err)
	}
	return time.Since(began)
}

// TestDomainsNeighbourDown has devices ask that nobody here knows, while the
// neighbour's controller is dead: a bounded delay, and an address of our own.
func TestDomainsNeighbourDown(t *testing.T) {
	a, b := newOperators(t, lab.MobilityOptions{})
	d := a.device(selfbuild.Binary(t), "dev1", "seamless", 1)
	r := b.radio("dev1", 1)
	alive := b.joinsAs(newPhone(1, 1), r)
	s := d.stream(1000)
	a.stop()
	known := map[netip.Addr]bool{d.ip: true}
	for n := range 4 {
		if n == 2 {
			// From dead to deaf: connections come about, and nobody answers.
			deaf, err := net.Listen("tcp", a.address)
			if err != nil {
				t.Fatal(err)
			}
			defer deaf.Close()
		}
		p := newPhone(2+n, 1)
		took := b.joinsAs(p, r)
		t.Logf("%s: %v after %v (neighbour alive: %v)", p.id, p.ip, took.Round(time.Millisecond), alive.Round(time.Millisecond))
		if took > 2*time.Second {
			t.Errorf("a dead neighbour costs %v", took)
		}
		if !b.domain.Prefix.Contains(p.ip) || known[p.ip] {
			t.Errorf("%s got %v", p.id, p.ip)
		}
		known[p.ip] = true
	}
	report := s.stop()
	t.Logf("meanwhile, in the domain without a controller: %v", report)
	requireNoLoss(t, report)
}

// lie is a controller that answers every question with a device it makes up.
type lie struct {
	mu     sync.Mutex
	answer func(openflow.MAC) domain.Answer
	claims int
}

func (l *lie) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case strings.HasSuffix(r.URL.Path, string(domain.KindQuery)):
		var q domain.Query
		_ = json.NewDecoder(r.Body).Decode(&q)
		_ = json.NewEncoder(w).Encode(l.answer(q.MAC))
	case strings.HasSuffix(r.URL.Path, string(domain.KindClaim)):
		var c domain.Claim
		_ = json.NewDecoder(r.Body).Decode(&c)
		l.claims++
		_ = json.NewEncoder(w).Encode(domain.Prepared{Move: c.Move, Carry: true})
	default:
		_, _ = w.Write([]byte("{}"))
	}
}

func (l *lie) tell(answer func(openflow.MAC) domain.Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answer = answer
}

// TestDomainsLyingNeighbour puts a liar with the neighbour's certificate in its
// place. Whatever it says of the addresses of our devices, of our gateway, or of
// nobody's, devices get addresses of our own; and of two devices for which it
// gives one address of its own, only one gets it.
func TestDomainsLyingNeighbour(t *testing.T) {
	t.Parallel()
	a, b := newOperators(t, lab.MobilityOptions{})
	r := b.radio("dev1", 1)
	first := newPhone(1, 1)
	b.joinsAs(first, r)
	a.stop()
	l := startLiar(t, a, b)
	b.joinsAs(first, r) // its lease went with the store in memory
	known := map[netip.Addr]bool{first.ip: true}
	n := 1
	says := func(home, ip string, macs ...openflow.MAC) func(openflow.MAC) domain.Answer {
		return func(m openflow.MAC) domain.Answer {
			v := domain.Visitor{Home: home, Device: "bait-" + strings.ReplaceAll(m.String(), ":", ""), MACs: append([]openflow.MAC{m}, macs...), IP: netip.MustParseAddr(ip), Policy: "seamless"}
			return domain.Answer{Known: true, Visitor: &v, Host: "a"}
		}
	}
	for name, answer := range map[string]func(openflow.MAC) domain.Answer{
		"an address that our device has": says("a", first.ip.String()),
		"our gateway's address":          says("a", b.domain.GatewayAddr.String()),
		"an address of our pool":         says("a", "10.30.77.77"),
		"an address of nobody's":         says("a", "203.0.113.77"),
		"a device of ours":               says("b", first.ip.String()),
		"a MAC address of ours":          says("a", "10.20.0.77", first.macs[0]),
	} {
		l.tell(answer)
		n++
		p := newPhone(n, 1)
		took := b.joinsAs(p, r)
		t.Logf("%s: %v after %v", name, p.ip, took.Round(time.Millisecond))
		if !b.domain.Prefix.Contains(p.ip) || known[p.ip] || took > 2*time.Second {
			t.Errorf("%s: %v after %v", name, p.ip, took)
		}
		known[p.ip] = true
	}
	if l.claims > 0 {
		t.Errorf("%d lies were believed", l.claims)
	}
	l.tell(says("a", "10.20.0.88"))
	x, y := newPhone(100, 1), newPhone(101, 1)
	b.joinsAs(x, r)
	b.joinsAs(y, r)
	t.Logf("one address for two devices: %v and %v", x.ip, y.ip)
	if x.ip == y.ip || known[x.ip] || known[y.ip] {
		t.Errorf("two devices have %v and %v", x.ip, y.ip)
	}
	var neighbours []domain.NeighbourStatus
	b.get("neighbours", &neighbours)
	t.Logf("%+v", neighbours)
}

// startLiar serves lies in place of a, to which b then talks.
func startLiar(t *testing.T, a, b *operator) *lie {
	t.Helper()
	l := &lie{answer: func(openflow.MAC) domain.Answer { return domain.Answer{} }}
	config, err := pki.Server(a.issue(pki.RoleController, "controller"), false)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(l)
	server.TLS = config
	server.StartTLS()
	t.Cleanup(server.Close)
	b.stop()
	b.neighbourURL = server.URL
	b.launch()
	b.furnish()
	return l
}

// TestDomainsForgedAndReplayed has somebody with the neighbour's certificate try to
// move a device that is neither its own nor with it, and use a message twice. Every
// attempt is refused, and the device's packets go on as if nothing were.
func TestDomainsForgedAndReplayed(t *testing.T) {
	t.Parallel()
	a, b := newOperators(t, lab.MobilityOptions{})
	d := a.device(selfbuild.Binary(t), "dev1", "seamless", 1)
	config, err := pki.Client(a.issue(pki.RoleNeighbour, "b"), pki.RoleController)
	if err != nil {
		t.Fatal(err)
	}
	forger := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: config}}
	defer forger.CloseIdleConnections()
	envelope := func() domain.Envelope {
		return domain.Envelope{From: "b", To: "a", Time: time.Now(), Nonce: token(t), Sequence: uint64(time.Now().UnixNano())}
	}
	macs := []openflow.MAC{hostMAC(a.lab.Host("dev1"), 0)}
	stolen := domain.Visitor{Home: "a", Device: "dev1", MACs: append([]openflow.MAC{{6, 0xdd, 0, 0, 0, 1}}, macs...), IP: d.ip}
	hello := domain.Hello{Envelope: envelope()}
	rules := a.rulesFor(d.ip)
	s := d.stream(1000)
	for _, x := range []struct {
		name string
		kind domain.Kind
		m    any
		want domain.Code
	}{
		{"a first hello", domain.KindHello, hello, ""},
		{"the same hello", domain.KindHello, hello, domain.CodeReplay},
		{"a device that has not left", domain.KindNotify, domain.Notify{Envelope: envelope(), Visitor: stolen, Move: token(t)}, domain.CodeHere},
		{"its address for another device", domain.KindNotify, domain.Notify{Envelope: envelope(), Visitor: domain.Visitor{Home: "b", Device: "x", MACs: []openflow.MAC{{2, 9}}, IP: d.ip}, Move: token(t)}, domain.CodePrefix},
		{"its MAC for another device", domain.KindNotify, domain.Notify{Envelope: envelope(), Visitor: domain.Visitor{Home: "b", Device: "x", MACs: macs, IP: netip.MustParseAddr("10.30.0.9")}, Move: token(t)}, domain.CodeTaken},
		{"an arrival that nobody expects", domain.KindComplete, domain.Complete{Envelope: envelope(), Subject: domain.Subject{Home: "a", Device: "dev1"}, Move: token(t), Host: "b", Since: time.Now()}, domain.CodeUnknown},
		{"an arrival by relay", domain.KindComplete, domain.Complete{Envelope: envelope(), Subject: domain.Subject{Home: "a", Device: "dev1"}, Host: "b"}, domain.CodeUnknown},
		{"a claim by another's MAC", domain.KindClaim, domain.Claim{Envelope: envelope(), Subject: domain.Subject{Home: "a", Device: "dev1"}, Move: token(t), MAC: openflow.MAC{2, 9}}, domain.CodeNotYours},
		{"a message from before", domain.KindHello, domain.Hello{Envelope: aged(envelope())}, domain.CodeReplay},
	} {
		if code := forge(t, forger, a, x.kind, x.m); code != x.want {
			t.Errorf("%s: code %q, want %q", x.name, code, x.want)
		}
	}
	if _, ok := a.roaming("dev1"); ok {
		t.Error("the device is taken to be on its way")
	}
	if after := a.rulesFor(d.ip); !slices.Equal(withoutCounts(after), withoutCounts(rules)) {
		t.Errorf("rules were\n%s\nand are\n%s", strings.Join(rules, "\n"), strings.Join(after, "\n"))
	}
	report := s.stop()
	t.Logf("meanwhile: %v", report)
	requireNoLoss(t, report)
	_ = b
}

func aged(e domain.Envelope) domain.Envelope {
	e.Time = e.Time.Add(-time.Minute)
	return e
}

// forge sends a message and returns the code of its refusal.
func forge(t *testing.T, c *http.Client, to *operator, kind domain.Kind, m any) domain.Code {
	t.Helper()
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Post("https://"+to.address+domain.Path+string(kind), "application/json", bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var refusal domain.Refusal
	_ = json.Unmarshal(body, &refusal)
	if res.StatusCode != http.StatusOK && refusal.Code == "" {
		t.Errorf("%s: %d %s", kind, res.StatusCode, body)
	}
	return refusal.Code
}

// withoutCounts drops from rules what changes with every packet.
func withoutCounts(rules []string) []string {
	var out []string
	for _, r := range rules {
		var kept []string
		for _, f := range strings.Fields(r) {
			if !strings.HasPrefix(f, "duration=") && !strings.HasPrefix(f, "n_packets=") && !strings.HasPrefix(f, "n_bytes=") {
				kept = append(kept, f)
			}
		}
		out = append(out, strings.Join(kept, " "))
	}
	slices.Sort(out)
	return out
}
