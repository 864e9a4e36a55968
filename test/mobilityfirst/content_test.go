package mobilityfirst

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/mobilityfirst/content"
)

// A file is got by its name over switches from whoever has it: the one, the other when that has ended, and a cache when nobody
// else has it any more, by its name or as the nearest.
func TestContents(t *testing.T) {
	begin(t)
	l := lab.New(t, line("mfcontents"))
	control(t, l)
	at, _ := run(t, l.Host("a"))
	bt, _ := run(t, l.Host("b"))
	ct, _ := run(t, l.Host("c"))
	dir := t.TempDir()
	want := random(t, 21*content.PieceSize+5)
	film := filepath.Join(dir, "film")
	if err := os.WriteFile(film, want, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := content.ManifestOf(bytes.NewReader(want))
	if err != nil {
		t.Fatal(err)
	}
	daemon := func(what, host string, args ...string) *testbed.Daemon {
		t.Helper()
		return program(t, l.Host(host), filepath.Join(dir, what+".log"), append([]string{"mf"}, args...)...)
	}
	must := func(why string, args ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
		defer cancel()
		to := filepath.Join(dir, "got")
		said, err := l.Host("b").Command(ctx, selfbuild.Binary(t), append(append([]string{"mf", "get", "--socket", bt}, args...), m.Name().String(), to)...).CombinedOutput()
		t.Logf("%s: %s", why, bytes.TrimSpace(said))
		if err != nil {
			t.Fatalf("%s: %v", why, err)
		}
		if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: other bytes, %v", why, err)
		}
		_ = os.Remove(to)
	}

	one := daemon("one", "a", "put", "--socket", at, film)
	must("from the one")
	other := daemon("other", "c", "put", "--socket", ct, film)
	must("from either")
	one.Kill()
	must("from the other")
	must("from the other, as there is no cache nearby", "--by", "nearest")

	key := filepath.Join(dir, "key")
	by := newName(t, key)
	daemon("cache", "a", "cache", "--socket", at, "--name-key", key, "--nearby", "--dir", filepath.Join(dir, "contents"))
	must("by a cache", "--by", by)
	other.Kill()
	must("from a cache", "--by", by)
	must("from the nearest cache", "--by", "nearest")
}
