package storage

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/folderlock"
	"github.com/sluice-net/sluice/services/mobilityfirst/custody"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

func keyOf(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

// signed returns a chunk of the first name.
func signed(to frame.GUID, flow, number uint64, payload string) Pending {
	c := custody.Chunk{ID: custody.ID{Destination: to, Flow: flow, Number: number}, Until: time.Now().Add(time.Hour), Payload: []byte(payload)}
	c.Sign(keyOf(1))
	return Pending{ID: c.ID, Bytes: c.AppendTo(nil)}
}

func openStore(t *testing.T, dir string) (*Store, []Kept) {
	t.Helper()
	s, all, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, all
}

func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	s, all := openStore(t, dir)
	if len(all) > 0 {
		t.Errorf("%v is in a new one", all)
	}
	if _, _, err := Open(dir); !errors.Is(err, folderlock.ErrBusy) {
		t.Errorf("opened twice: %v", err)
	}
	a, b := frame.GUID{1}, frame.GUID{2}
	pieces := []Pending{signed(a, 1, 1, "one"), signed(a, 1, 2, "two"), signed(b, 1, 1, "")}
	pieces[1].Place = 0xab // of the others it is not known
	if err := s.Put(pieces); err != nil {
		t.Fatal(err)
	}
	// What another process has left half, and what is nobody's.
	for _, f := range []string{filepath.Join(a.String(), tempPrefix+"7"), filepath.Join(a.String(), "x-1-1"), "README"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("?"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, all = openStore(t, dir)
	if len(all) != len(pieces) {
		t.Errorf("%d chunks, want %d: %v", len(all), len(pieces), all)
	}
	for _, p := range pieces {
		if !slices.ContainsFunc(all, func(k Kept) bool { return k.ID == p.ID && k.Place == p.Place && k.Size == int64(len(p.Bytes)) }) {
			t.Errorf("%v is missing in %v", p.ID, all)
		}
		if got, err := s.Read(p.ID, p.Place); err != nil || !bytes.Equal(got, p.Bytes) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if err := errors.Join(s.Remove(p.ID, p.Place), s.Remove(p.ID, p.Place)); err != nil {
			t.Error(err)
		}
	}
	s.RemoveEmpty(b)
	if _, err := os.Stat(filepath.Join(dir, b.String())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of a name for which there is nothing: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, a.String(), tempPrefix+"7")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was half: %v", err)
	}
}

// A chunk that is on the disk twice, because an earlier process could not remove it before it came
// again from another place, counts once.
func TestTwice(t *testing.T) {
	dir := t.TempDir()
	s, _ := openStore(t, dir)
	one := signed(frame.GUID{1}, 1, 1, "one")
	two := one
	one.Place, two.Place = 1, 2
	if err := errors.Join(s.Put([]Pending{one}), s.Put([]Pending{two}), s.Close()); err != nil {
		t.Fatal(err)
	}
	n, err := New(Options{Dir: dir, Size: MinSize})
	if err != nil {
		t.Fatal(err)
	}
	defer n.store.Close()
	if all, err := List(dir); err != nil || len(all) != 1 || n.Counters().Chunks != 1 || n.Counters().Bytes != minCharge {
		t.Errorf("%+v, with %v on the disk, %v", n.Counters(), all, err)
	}
}

// A chunk that cannot be written completely leaves no file that looks complete.
func TestPutFails(t *testing.T) {
	dir := t.TempDir()
	s, _ := openStore(t, dir)
	taken := frame.GUID{9}
	if err := os.WriteFile(filepath.Join(dir, taken.String()), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Put([]Pending{signed(frame.GUID{1}, 1, 1, "one"), signed(taken, 1, 1, "two")}); err == nil {
		t.Error("kept in a file")
	}
	if err := os.Remove(filepath.Join(dir, taken.String())); err != nil {
		t.Fatal(err)
	}
	if all, err := List(dir); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
	if rest, err := filepath.Glob(filepath.Join(dir, "*", tempPrefix+"*")); err != nil || len(rest) > 0 {
		t.Errorf("%v, %v", rest, err)
	}
}

func TestQuality(t *testing.T) {
	const ms = time.Millisecond
	for _, x := range []struct {
		name  string
		trips []time.Duration
		good  bool
	}{
		{"the first", []time.Duration{50 * ms}, true},
		{"even", []time.Duration{50 * ms, 50 * ms, 50 * ms, 50 * ms}, true},
		{"worse", []time.Duration{50 * ms, 50 * ms, 50 * ms, 50 * ms, 80 * ms, 80 * ms, 80 * ms}, false},
		{"a tenth worse", []time.Duration{50 * ms, 50 * ms, 50 * ms, 55 * ms, 55 * ms, 55 * ms}, true},
		{"worse by little on a short way", []time.Duration{ms, ms, ms, ms, 2 * ms, 2 * ms, 2 * ms}, true},
		{"better", []time.Duration{80 * ms, 80 * ms, 80 * ms, 50 * ms}, true},
		{"worse, and so it stays", append([]time.Duration{50 * ms, 50 * ms}, slices.Repeat([]time.Duration{80 * ms}, longTerm)...), true},
	} {
		var q quality
		for _, d := range x.trips {
			q.add(d)
		}
		if q.isGood() != x.good {
			t.Errorf("%s: good is %v; short term %v, long term %v", x.name, q.isGood(), q.mean(shortTerm), q.mean(longTerm))
		}
	}
}
