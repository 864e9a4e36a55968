package pebblestore

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-net/sluice/internal/logtest"
	"github.com/sluice-net/sluice/store"
)

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func opened(t testing.TB, o Options) *Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := Open(ctx, o)
	must(t, err)
	return s
}

// text returns all that a store has.
func text(t testing.TB, entries []store.Entry, err error) string {
	t.Helper()
	must(t, err)
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "%s %d %x\n", e.Key, e.Revision, e.Value)
	}
	return b.String()
}

// filled makes a store whose database has sorted files, some of them compacted, and a log,
// and returns what it holds.
func filled(t testing.TB, dir string) string {
	t.Helper()
	s := opened(t, Options{Dir: dir})
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 150 {
		value := make([]byte, 8<<10)
		for i := range value {
			value[i] = byte(r.Uint32())
		}
		must(t, s.Put(t.Context(), fmt.Sprintf("large/%d", n%100), value))
	}
	for n := range 100 {
		must(t, s.Put(t.Context(), fmt.Sprintf("small/%d", n), fmt.Appendf(nil, `{"n":%d}`, n)))
	}
	must(t, s.Delete(t.Context(), "small/3"))
	all, err := s.List(t.Context(), "")
	want := text(t, all, err)
	must(t, s.Close())
	return want
}

// parts lists the files of a store, relative to its folder.
func parts(t testing.TB, dir string) (files []string) {
	t.Helper()
	must(t, filepath.WalkDir(databaseDir(dir), func(file string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(dir, file)
			files = append(files, name)
		}
		return err
	}))
	return append(files, filepath.Base(headFile(dir)))
}

// notSilent fails unless what is left of a store is found damaged, and refused, or is all
// there. It reports whether it is found damaged.
func notSilent(t *testing.T, dir, what, want string) (damaged bool) {
	t.Helper()
	report, err := Check(t.Context(), dir)
	must(t, err)
	if fault := report.Err(); fault != nil {
		if s, err := Open(t.Context(), Options{Dir: dir}); err == nil {
			t.Errorf("%s: %v; it was opened all the same", what, fault)
			must(t, s.Close())
		}
		return true
	}
	if report.Fresh {
		t.Errorf("%s: it is taken for a new one", what)
	} else if text(t, report.content.entries, nil) != want {
		t.Errorf("%s: it lacks something, and nothing is said", what)
	}
	return false
}

// Whatever byte of whatever file is changed, and whatever file is cut off or missing: the
// store is found damaged, or lacks nothing.
func TestDamageIsNeverSilent(t *testing.T) {
	template := filepath.Join(t.TempDir(), "data")
	want := filled(t, template)
	r := rand.New(rand.NewPCG(3, 4))
	found, tried := 0, 0
	try := func(what string, damage func(dir string)) {
		dir := filepath.Join(t.TempDir(), "data")
		must(t, os.CopyFS(dir, os.DirFS(template)))
		damage(dir)
		tried++
		switch {
		case notSilent(t, dir, what, want):
			found++
		case tried%16 == 0: // what is opened for writing is all there as well
			s := opened(t, Options{Dir: dir})
			all, err := s.List(t.Context(), "")
			if text(t, all, err) != want {
				t.Errorf("%s: when opened it lacks something", what)
			}
			must(t, s.Close())
		}
		must(t, os.RemoveAll(dir))
	}
	for _, name := range parts(t, template) {
		whole, err := os.ReadFile(filepath.Join(template, name))
		must(t, err)
		try(name+" missing", func(dir string) { must(t, os.Remove(filepath.Join(dir, name))) })
		if len(whole) == 0 {
			continue
		}
		for range 24 {
			at, bits := r.IntN(len(whole)), byte(1+r.IntN(255))
			try(fmt.Sprintf("%s changed at %d of %d", name, at, len(whole)), func(dir string) {
				b := bytes.Clone(whole)
				b[at] ^= bits
				must(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
			})
		}
		for range 3 {
			at := r.IntN(len(whole))
			try(fmt.Sprintf("16 bytes of %s changed at %d of %d", name, at, len(whole)), func(dir string) {
				b := bytes.Clone(whole)
				for i := at; i < min(at+16, len(b)); i++ {
					b[i] = byte(r.Uint32())
				}
				must(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
			})
			try(fmt.Sprintf("%s cut off at %d of %d", name, at, len(whole)), func(dir string) {
				must(t, os.Truncate(filepath.Join(dir, name), int64(at)))
			})
		}
	}
	if found < tried/4 {
		t.Errorf("of %d damages %d were found", tried, found)
	}
	t.Logf("%d of %d damages were found, the others cost nothing", found, tried)
}

// A store that is gone, or is another's, is not taken for a new one.
func TestMissingStoreIsRefused(t *testing.T) {
	for what, damage := range map[string]func(dir string) error{
		"missing": func(dir string) error { return os.RemoveAll(databaseDir(dir)) },
		"empty":   func(dir string) error { return removeContent(databaseDir(dir)) },
		"another": func(dir string) error {
			other := filepath.Join(filepath.Dir(dir), "other")
			filled(t, other)
			if err := os.RemoveAll(databaseDir(dir)); err != nil {
				return err
			}
			return os.Rename(databaseDir(other), databaseDir(dir))
		},
		"former": func(dir string) error {
			if err := removeContent(dir); err != nil {
				return err
			}
			return os.MkdirAll(filepath.Join(dir, "etcd", "member"), 0o700)
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			filled(t, dir)
			must(t, damage(dir))
			s, err := Open(t.Context(), Options{Dir: dir})
			if err == nil {
				must(t, s.Close())
				t.Fatal("it was opened")
			}
			if !strings.Contains(err.Error(), "store reset") {
				t.Errorf("%v does not say what helps", err)
			}
			_, err = Reset(t.Context(), dir)
			must(t, err)
			s = opened(t, Options{Dir: dir})
			if all, err := s.List(t.Context(), ""); err != nil || len(all) != 0 {
				t.Errorf("after a reset it holds %d entries, %v", len(all), err)
			}
			must(t, s.Close())
		})
	}
}

func removeContent(dir string) error {
	all, err := os.ReadDir(dir)
	for _, e := range all {
		if err == nil {
			err = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
	return err
}

// An entry that another one stands for, or that is lost as a whole, is found by the
// checksums of ours: to the database all is well.
func TestDatabaseThatLies(t *testing.T) {
	value := func(e store.Entry) []byte { _, v := encodeEntry(e); return v }
	for what, c := range map[string]struct {
		change func(*pebble.Batch) error
		want   string
	}{
		"entry lost": {func(b *pebble.Batch) error { return b.Delete(databaseKey("small/7"), nil) }, "entries"},
		"entry from nowhere": {func(b *pebble.Batch) error {
			k, v := encodeEntry(store.Entry{Key: "x", Revision: 1})
			return b.Set(k, v, nil)
		}, "entries"},
		"entry of before": {func(b *pebble.Batch) error {
			e := store.Entry{Key: "small/7", Revision: 1}
			return b.Set(databaseKey("small/7"), value(e), nil)
		}, "others than those"},
		"entry of another": {func(b *pebble.Batch) error {
			e := store.Entry{Key: "small/8", Revision: 1}
			return b.Set(databaseKey("small/7"), value(e), nil)
		}, `"small/7"`},
		"value cut off":       {func(b *pebble.Batch) error { return b.Set(databaseKey("small/7"), []byte("short"), nil) }, `"small/7"`},
		"summary missing":     {func(b *pebble.Batch) error { return b.Delete([]byte(summaryKey), nil) }, "summary"},
		"summary damaged":     {func(b *pebble.Batch) error { return b.Set([]byte(summaryKey), make([]byte, summaryBytes), nil) }, "summary"},
		"a key of no meaning": {func(b *pebble.Batch) error { return b.Set([]byte("z"), nil, nil) }, `"z"`},
	} {
		t.Run(what, func(t *testing.T) {
			var log logtest.Log
			dir := filepath.Join(t.TempDir(), "data")
			filled(t, dir)
			db, err := openDatabase(databaseDir(dir), false, nil, log.Logger())
			must(t, err)
			b := db.NewBatch()
			must(t, c.change(b), db.Commit(b), b.Close(), db.Close())
			if report, err := Check(t.Context(), dir); err != nil || report.Err() == nil || !strings.Contains(report.Err().Error(), c.want) {
				t.Errorf("%v, %v; want that it names %s", report.Err(), err, c.want)
			}
		})
	}
}
