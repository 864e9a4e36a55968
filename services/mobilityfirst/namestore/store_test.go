package namestore

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// owner returns the key of an owner.
func owner(n int) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{byte(n), byte(n >> 8)}, ed25519.SeedSize/2))
}

func place(n uint16) gnrswire.Address {
	return gnrswire.AddrPortOf(netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), n))
}

func sign(t testing.TB, who int, number uint64, until time.Time, at uint16) *record.Record {
	t.Helper()
	r, err := record.Sign(owner(who), number, until, place(at))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func open(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, record.ErrClosed) {
			t.Error(err)
		}
	})
	return s
}

// number returns the number of a name's record, zero if there is none.
func (s *Store) number(t testing.TB, name frame.GUID) uint64 {
	t.Helper()
	b, found, err := s.Get(nil, name)
	if err != nil {
		t.Fatal(err)
	}
	if !found {
		return 0
	}
	r, err := record.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return r.Number
}

// The store has the newest record of each name, even after it was opened again; an older one is
// refused, and writing the same one again succeeds.
func TestNewest(t *testing.T) {
	o := Options{Dir: t.TempDir(), MaxNames: 2}
	s := open(t, o)
	until := time.Now().Add(time.Hour)
	for _, x := range []struct {
		r    *record.Record
		want error
	}{
		{sign(t, 1, 5, until, 1), nil},
		{sign(t, 1, 5, until, 1), nil},
		{sign(t, 1, 5, until, 2), record.ErrOld},
		{sign(t, 1, 4, until, 1), record.ErrOld},
		{sign(t, 1, 6, until, 3), nil},
		{sign(t, 1, 5, until, 1), record.ErrOld},
		{sign(t, 2, 0, until, 1), nil},
		{sign(t, 3, 1, until, 1), record.ErrFull},
	} {
		if err := s.Write(t.Context(), x.r); !errors.Is(err, x.want) {
			t.Errorf("%d of %v: %v, want %v", x.r.Number, x.r.GUID(), err, x.want)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Get(nil, frame.GUID{}); !errors.Is(err, record.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	if err := s.Write(t.Context(), sign(t, 1, 7, until, 1)); !errors.Is(err, record.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	s = open(t, o)
	if got := s.number(t, sign(t, 1, 6, until, 3).GUID()); got != 6 || s.Names() != 2 {
		t.Errorf("number %d of %d names", got, s.Names())
	}
}

// Writers of one name and of many: each name ends with its highest number, and no write succeeds that
// another has overtaken.
func TestConcurrentWriters(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	const names, numbers = 20, 50
	until := time.Now().Add(time.Hour)
	var all sync.WaitGroup
	for who := range names {
		for n := range numbers {
			r := sign(t, who, uint64(n+1), until, uint16(n))
			all.Go(func() {
				if err := s.Write(t.Context(), r); err != nil && !errors.Is(err, record.ErrOld) {
					t.Error(err)
				}
				if got := s.number(t, r.GUID()); got < r.Number {
					t.Errorf("number %d after %d", got, r.Number)
				}
			})
		}
	}
	all.Wait()
	for who := range names {
		if got := s.number(t, sign(t, who, 1, until, 0).GUID()); got != numbers {
			t.Errorf("name %d has number %d", who, got)
		}
	}
	if s.Names() != names {
		t.Errorf("%d names", s.Names())
	}
}

// An expired record is remembered as long as an older one could be valid, and then removed.
func TestForgotten(t *testing.T) {
	now := time.Now()
	var ahead atomic.Int64
	s := open(t, Options{Dir: t.TempDir(), Now: func() time.Time { return now.Add(time.Duration(ahead.Load())) }})
	short, long := sign(t, 1, 1, now.Add(time.Minute), 1), sign(t, 2, 1, now.Add(record.MaxValidity), 1)
	for _, r := range []*record.Record{short, long} {
		if err := s.Write(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for after, want := range map[time.Duration]bool{
		0: false, time.Hour: false, record.KeepFor: false, record.KeepFor + 2*time.Second: true,
	} {
		stored := append(be.AppendUint64(nil, uint64(now.Unix())), short.AppendTo(nil)...)
		if got := removable(stored, now.Add(after)); got != want {
			t.Errorf("after %v: %v", after, got)
		}
	}
	ahead.Store(int64(record.KeepFor + 2*time.Second))
	deadline, tick := time.After(time.Minute), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for s.Names() > 0 {
		select {
		case <-deadline:
			t.Fatalf("%d names are left", s.Names())
		case <-tick.C:
		}
	}
	if _, found, err := s.Get(nil, short.GUID()); found || err != nil {
		t.Errorf("%v, %v", found, err)
	}
}

// Writing a record again reports that nothing has changed.
func TestUnchanged(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	r := sign(t, 1, 1, time.Now().Add(time.Hour), 1)
	for _, want := range []bool{true, false} {
		done := make(chan bool)
		if err := s.Start(r, func(changed bool, err error) { done <- changed && err == nil }); err != nil {
			t.Fatal(err)
		}
		if got := <-done; got != want {
			t.Errorf("changed: %v", got)
		}
	}
}

// Every acknowledged write is there after a power failure, of which the disk keeps only what was
// synced.
func TestPowerCut(t *testing.T) {
	fs := vfs.NewCrashableMem()
	until := time.Now().Add(time.Hour)
	for cut := range 10 {
		s := open(t, Options{Dir: "names", fs: fs})
		for who := range 50 {
			if err := s.Write(t.Context(), sign(t, who, uint64(cut+1), until, 1)); err != nil {
				t.Fatal(err)
			}
		}
		after := fs.CrashClone(vfs.CrashCloneCfg{})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		fs = after
		s = open(t, Options{Dir: "names", fs: fs})
		for who := range 50 {
			if got := s.number(t, sign(t, who, 1, until, 1).GUID()); got != uint64(cut+1) {
				t.Errorf("after %d power cuts: number %d", cut+1, got)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// When the disk fails the process continues: writes are refused with the reason, reads continue,
// and every acknowledged write is there when the store is opened again on a working disk.
func TestFailingDisk(t *testing.T) {
	for kind, only := range map[string]func(errorfs.Op) bool{
		"everything": func(errorfs.Op) bool { return true },
		"the log":    func(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".log") },
		"syncs":      func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData },
	} {
		t.Run(kind, func(t *testing.T) {
			var fails atomic.Bool
			fs := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if fails.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && only(op) {
					return syscall.EROFS
				}
				return nil
			}))
			o := Options{Dir: t.TempDir(), fs: fs}
			s := open(t, o)
			until := time.Now().Add(time.Hour)
			kept := sign(t, 1, 1, until, 1)
			if err := s.Write(t.Context(), kept); err != nil {
				t.Fatal(err)
			}
			fails.Store(true)
			for number := range uint64(3) {
				if err := s.Write(t.Context(), sign(t, 1, 2+number, until, 1)); !errors.Is(err, syscall.EROFS) {
					t.Errorf("a write on a disk that has failed: %v, want %v", err, syscall.EROFS)
				}
			}
			if got := s.number(t, kept.GUID()); got == 0 {
				t.Error("what was acknowledged is not read any more")
			}
			fails.Store(false)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			s = open(t, o)
			if got := s.number(t, kept.GUID()); got == 0 {
				t.Error("what was acknowledged is gone")
			}
			if err := s.Write(t.Context(), sign(t, 1, 9, until, 1)); err != nil {
				t.Errorf("a write after the store was opened again: %v", err)
			}
		})
	}
}

func BenchmarkWrite(b *testing.B) {
	s := open(b, Options{Dir: b.TempDir()})
	until := time.Now().Add(time.Hour)
	var next sync.Mutex
	number := uint64(0)
	b.SetParallelism(512)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			next.Lock()
			number++
			r := &record.Record{Key: [32]byte{byte(number), byte(number >> 8)}, Number: number, Until: until.Unix()}
			next.Unlock()
			if err := s.Write(b.Context(), r); err != nil && !errors.Is(err, record.ErrOld) {
				b.Fatal(err)
			}
		}
	})
}
