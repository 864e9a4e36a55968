package ingress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// TestTail checks that the last lines are kept for any output, and that none is too long.
func TestTail(t *testing.T) {
	stderr := &tail{}
	for _, s := range []string{"one\ntwo\nth", "ree\n\nfour\x1b[0m\x00\r\n", strings.Repeat("x", 1000), strings.Repeat("y", 1000)} {
		if n, err := stderr.Write([]byte(s)); n != len(s) || err != nil {
			t.Errorf("%d %v", n, err)
		}
	}
	if got, want := stderr.String(), "two; three; four[0m; "+strings.Repeat("x", keepLine); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	stderr = &tail{}
	fmt.Fprintln(stderr, "rtsp://me:secret@camera:554/x: Connection refused")
	fmt.Fprintln(stderr, "Connection to srt://0.0.0.0:9000?mode=listener&passphrase=secret failed")
	fmt.Fprint(stderr, strings.Repeat("x", keepLine-len(" rtsp://me:secret")), " rtsp://me:secret@camera:554/x")
	want := "rtsp://…@camera:554/x: Connection refused; Connection to srt://0.0.0.0:9000?mode=listener&passphrase=… failed; " + strings.Repeat("x", keepLine-len(" rtsp://me:secret")) + " rtsp://…@camer"
	if got := stderr.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	stderr = &tail{source: "rtsp://admin:p@SS@camera/user=someone&password=hush"}
	fmt.Fprintln(stderr, "Failed to resolve hostname SS@camera")
	fmt.Fprintln(stderr, "method DESCRIBE failed for hush")
	fmt.Fprint(stderr, strings.Repeat("x", readLine-2), "admin:p@SS")
	if got, want := stderr.String(), "Failed to resolve hostname …@camera; method DESCRIBE failed for …; "+strings.Repeat("x", keepLine); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	rapid.Check(t, func(t *rapid.T) {
		stderr := &tail{}
		for _, b := range rapid.SliceOf(rapid.SliceOf(rapid.Byte())).Draw(t, "parts") {
			if n, err := stderr.Write(b); n != len(b) || err != nil {
				t.Fatalf("%d %v", n, err)
			}
		}
		if got := stderr.String(); len(got) > (keepLines+1)*(keepLine+2) || strings.ContainsAny(got, "\n\x00") {
			t.Fatalf("%q", got)
		}
	})
}

// TestConnLimiter checks that connections are bounded for each source and in all, and released.
func TestConnLimiter(t *testing.T) {
	c := &connLimiter{most: 3, mostPerSource: 2}
	a, b := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32")
	got := []bool{c.acquire(a, false), c.acquire(a, false), c.acquire(a, false), c.acquire(b, false), c.acquire(b, true)}
	if want := "[true true false true false]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %v", got, want)
	}
	c.release(a)
	if !c.acquire(b, false) || len(c.bySource) != 2 {
		t.Error("a place is lost")
	}
	if c.release(a); c.acquire(b, false) || !c.acquire(b, true) {
		t.Error("a proxy has no more places than others")
	}
	for range 3 {
		c.release(b)
	}
	if len(c.bySource) != 0 || c.all != 0 {
		t.Errorf("%+v is left", c.bySource)
	}
}

// TestLimitedListener checks that a source that holds all its connections does not keep others
// from connecting.
func TestLimitedListener(t *testing.T) {
	g, _, _ := start(t, nil)
	at := strings.TrimPrefix(g.PublicURL(), "http://")
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for range maxSourceConns {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	more, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer more.Close()
	_ = more.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := more.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one more is taken: %v", err)
	}
	other := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	c, err := other.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(c).ReadString('\n'); !strings.Contains(line, "404") {
		t.Errorf("another source: %q %v", line, err)
	}
}

// TestPasswords checks that wrong passwords count within a window and right ones do not, and
// that the remembered sources are bounded.
func TestPasswords(t *testing.T) {
	p, hash := newPasswordChecker(), hashOf(t, "right")
	one, other := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32")
	check := func(source netip.Prefix, password string, want error) {
		t.Helper()
		if err := p.check(t.Context(), source, hash, password); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	for range 3 * maxWrongPerSource {
		check(one, "right", nil)
	}
	for range maxWrongPerSource {
		check(one, "wrong", errWrongPassword)
	}
	check(one, "right", errTooManyWrong)
	check(other, "right", nil)
	p.bySource[one].since = p.bySource[one].since.Add(-wrongWindow)
	check(one, "right", nil)
	p.all = attempts{since: time.Now(), n: maxWrongTotal} // of other sources
	check(other, "right", nil)
	check(other, "wrong", errTooManyWrong)
	p.all = attempts{}
	for range maxComparisons {
		p.slots <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.check(ctx, other, hash, "another"); !errors.Is(err, errBusy) {
		t.Errorf("%v, want %v", err, errBusy)
	}
	if err := p.check(ctx, other, hash, "right"); err != nil {
		t.Errorf("a right one that needs no comparison: %v", err)
	}
	now := time.Now()
	for i := range uint32(maxSources + 100) {
		p.all = attempts{} // the total was exceeded long before
		p.allowAttempt(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32), false, now)
	}
	if len(p.bySource) != maxSources {
		t.Errorf("%d sources are remembered", len(p.bySource))
	}
	check(netip.MustParsePrefix("192.0.2.78/32"), "right", nil)
	if !p.allowAttempt(netip.MustParsePrefix("192.0.2.77/32"), false, now.Add(wrongWindow)) || len(p.bySource) > 1 {
		t.Errorf("%d sources are left after their time", len(p.bySource))
	}
}

// TestTogether adds, removes, feeds and reports channels and sends bursts, all concurrently.
func TestTogether(t *testing.T) {
	g, _, c := start(t, nil)
	deadline := time.Now().Add(time.Second)
	var wg sync.WaitGroup
	for i := range uint16(3) {
		name := fmt.Sprintf("c%d", i)
		wg.Go(func() {
			for n := 0; time.Now().Before(deadline); n++ {
				spec := waits(name, i+1)
				spec.BitRate += units.Rate(n % 1000)
				if n%10 == 9 {
					_ = c.DeleteChannel(t.Context(), name)
				} else if err := c.SetChannel(t.Context(), spec); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			packet := []byte{0x80, 96, 0, 1, 0, 0, 0, 1, 0, 0, 0, 9, 0x65, 1}
			for n := byte(0); time.Now().Before(deadline); n++ {
				if x := g.channel(name); x != nil {
					packet[3], packet[7] = n, n
					x.feed(packet)
				}
			}
		})
		wg.Go(func() {
			for time.Now().Before(deadline) {
				_ = c.Burst(t.Context(), name, gatewayapi.Burst{To: netip.MustParseAddrPort("192.0.2.9:5000")}) // the channel may not exist
				g.live()
			}
		})
	}
	wg.Wait()
}
