package agent

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/services/sos/pathrate"
)

func newTestPacers() *pacers { return newPacers(&Agent{}) }

// TestMemory checks that saved paths are restored, and that damaged files or those of others are
// not.
func TestMemory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "paths")
	path := netip.MustParseAddrPort("192.0.2.1:8441")
	x := newTestPacers()
	if err := x.load(file); err != nil {
		t.Errorf("no file: %v", err)
	}
	p := x.of(path)
	p.control, p.shownAt, p.rtt, p.segment = pathrate.New(3e7, 0, false), time.Now(), 150*time.Millisecond, 1448
	p.loss.note(1e6, 1e3)
	x.of(netip.MustParseAddrPort("192.0.2.2:8441")) // a path of which nothing is known
	if err := writePaths(file, x.stored(time.Now())); err != nil {
		t.Fatal(err)
	}
	y := newTestPacers()
	if err := y.load(file); err != nil {
		t.Fatal(err)
	}
	if got := y.of(path); got.control == nil || got.control.Rate() != 3e7 || got.rtt != p.rtt || got.segment != p.segment || got.loss.share != 1e-3 || len(y.all) != 1 {
		t.Errorf("remembered %+v", got)
	}
	if at := y.of(path).shownAt; at == at.Round(0) || !at.Round(0).Equal(p.shownAt.Round(0)) {
		t.Errorf("the age of what was shown at %v depends on the wall clock, which may be set back: %v", p.shownAt, at)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	entry := func(change func(*storedPath)) []byte {
		var all []storedPath
		if err := json.Unmarshal(whole, &all); err != nil {
			t.Fatal(err)
		}
		change(&all[0])
		b, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, c := range map[string]struct {
		text    []byte
		refused bool
	}{
		"cut off":            {whole[:len(whole)-3], true},
		"too long":           {make([]byte, maxStoreBytes+1), true},
		"too many":           {[]byte("[" + strings.Repeat("{},", maxPeers) + "{}]"), true},
		"of another kind":    {[]byte("name: west\n"), true},
		"no peer":            {entry(func(r *storedPath) { r.Peer = netip.Addr{} }), false},
		"no rate":            {entry(func(r *storedPath) { r.Rate = 0 }), false},
		"endless rate":       {entry(func(r *storedPath) { r.Rate = 1e300 }), false},
		"no round trip":      {entry(func(r *storedPath) { r.RTT = -1 }), false},
		"endless trip":       {entry(func(r *storedPath) { r.RTT = 1 << 62 }), false},
		"more lost than all": {entry(func(r *storedPath) { r.Loss = 1.5 }), false},
		"tiny segments":      {entry(func(r *storedPath) { r.Segment = 1 }), false},
		"from another time":  {entry(func(r *storedPath) { r.Seen = time.Unix(0, 0) }), false},
	} {
		if err := os.WriteFile(file, c.text, 0o600); err != nil {
			t.Fatal(err)
		}
		z := newTestPacers()
		if err := z.load(file); (err != nil) != c.refused || len(z.all) > 0 {
			t.Errorf("%s: %v, %d paths", name, err, len(z.all))
		}
	}
	if err := os.WriteFile(file, entry(func(r *storedPath) { r.Seen = time.Now().Add(time.Hour) }), 0o600); err != nil {
		t.Fatal(err)
	}
	z := newTestPacers()
	if err := z.load(file); err != nil {
		t.Fatal(err)
	}
	if got := z.of(path); got.control.Pace() > 2e7 {
		t.Errorf("what a clock ahead has written is believed: pace %.0f", got.control.Pace())
	}
}

// TestDoubtStays checks that a rate that competition may have lowered is tried at half when the path
// is used again, also after a restart.
func TestDoubtStays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "paths")
	path := netip.MustParseAddrPort("192.0.2.1:8441")
	x, now := newTestPacers(), time.Now()
	p := x.of(path)
	p.control, p.shownAt, p.rtt, p.segment = pathrate.New(3e7, 0, true), now, 150*time.Millisecond, 1448
	if err := writePaths(file, x.stored(now)); err != nil {
		t.Fatal(err)
	}
	y := newTestPacers()
	if err := y.load(file); err != nil {
		t.Fatal(err)
	}
	p.retryRate(now)
	for when, p := range map[string]*pacer{"after a rest": p, "after a restart": y.of(path)} {
		if pace := p.control.Pace(); pace > 1.6e7 {
			t.Errorf("%s a doubtful rate of 3e7 is tried at %.0f", when, pace)
		}
		if s, _ := p.status(path, now); !s.Doubtful {
			t.Errorf("%s: %+v", when, s)
		}
	}
}

// TestMemoryOfOthers checks that a file that other users may have written is not believed.
func TestMemoryOfOthers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "paths")
	valid := storedPath{Peer: netip.MustParseAddr("192.0.2.1"), Port: 8441, Rate: 3e7, RTT: 150_000, Segment: 1448, Seen: time.Now()}
	if err := writePaths(file, []storedPath{valid}); err != nil {
		t.Fatal(err)
	}
	refused := func() bool {
		x := newTestPacers()
		err := x.load(file)
		if err == nil != (len(x.all) == 1) {
			t.Errorf("%v, and %d paths", err, len(x.all))
		}
		return err != nil
	}
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o644: false, 0o660: true, 0o602: true} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		if refused() != want {
			t.Errorf("mode %o: refused: %v, want %v", mode, !want, want)
		}
	}
	const other = 12345
	for _, c := range []struct {
		mode       os.FileMode
		owner, own uint32
		trusted    bool
	}{{0o600, 0, other, true}, {0o600, other, other, true}, {0o600, other, 0, false}, {0o600, other, other + 1, false}, {os.ModeNamedPipe | 0o600, 0, 0, false}} {
		if err := checkTrusted(c.mode, c.owner, c.own); (err == nil) != c.trusted {
			t.Errorf("%v of user %d, for user %d: %v", c.mode, c.owner, c.own, err)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if !refused() {
		t.Error("a pipe is read")
	}
}

// FuzzMemory checks that no file makes an agent fail, or accept values out of range.
func FuzzMemory(f *testing.F) {
	valid := storedPath{Peer: netip.MustParseAddr("192.0.2.1"), Port: 8441, Rate: 3e7, RTT: 150_000, Segment: 1448, Seen: time.Now()}
	b, err := json.Marshal([]storedPath{valid})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`[]`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		file := filepath.Join(dir, "paths")
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		x := newTestPacers()
		if err := x.load(file); err != nil && len(x.all) > 0 {
			t.Errorf("%v, and %d paths", err, len(x.all))
		}
		for path, p := range x.all {
			if w := p.initialWindow(0); w < 0 || p.control.Rate() <= 0 || p.control.Rate() > maxStoredRate || !path.IsValid() {
				t.Errorf("%v: %d segments, rate %v", path, w, p.control.Rate())
			}
		}
	})
}
