package kit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/memstore"
)

// TestRecords checks with random stores that Load passes on every usable record within the bound
// once, deletes exactly the others, leaves other prefixes alone, and logs at most one line.
func TestRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var log bytes.Buffer
		r := kit.Records[int]{
			Store: memstore.New(), Prefix: "numbers/", Plural: "numbers", Log: slog.New(slog.NewTextHandler(&log, nil)),
			MaxItems: rapid.SampledFrom([]int{0, 1, 200}).Draw(t, "bound"),
		}
		defer r.Store.Close()
		want := map[string]int{}
		all := rapid.SliceOfN(rapid.SampledFrom([]string{"7", "13", `"text"`, "", "{"}), 0, 300).Draw(t, "records")
		for i, text := range all {
			name := fmt.Sprintf("%03d", i)
			if err := r.Store.Put(t.Context(), r.Prefix+name, []byte(text)); err != nil {
				t.Fatal(err)
			}
			if text == "7" && (r.MaxItems == 0 || len(want) < r.MaxItems) {
				want[name] = 7
			}
		}
		if err := r.Store.Put(t.Context(), "numbers-of-others/1", []byte("{")); err != nil {
			t.Fatal(err)
		}
		for round := range 2 {
			log.Reset()
			used := map[string]int{}
			if err := r.Load(t.Context(), func(name string, v int) error {
				if v == 13 {
					return errors.New("bad luck")
				}
				if _, twice := used[name]; twice {
					t.Errorf("%s twice", name)
				}
				used[name] = v
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			left, err := r.Store.List(t.Context(), "numbers")
			if err != nil || fmt.Sprint(used) != fmt.Sprint(want) || len(left) != len(want)+1 {
				t.Errorf("used %v, %d left with that of others (%v), want %v", used, len(left), err, want)
			}
			if n, some := strings.Count(log.String(), "\n"), round == 0 && len(want) < len(all); n > 1 || (n == 1) != some {
				t.Errorf("%d lines about %d of %d records: %s", n, len(want), len(all), log.String())
			}
		}
	})
}

// readOnly is a store that cannot be written.
type readOnly struct{ store.Store }

func (readOnly) Apply(context.Context, ...store.Op) error { return store.ErrClosed }

// TestRecordsUnwritable checks that a service starts with a store that cannot be written: an unusable
// record then stays.
func TestRecordsUnwritable(t *testing.T) {
	r := kit.Records[int]{Store: memstore.New(), Prefix: "numbers/", Plural: "numbers", Log: slog.New(slog.DiscardHandler)}
	defer r.Store.Close()
	if err := errors.Join(r.Put(t.Context(), "one", 1), r.Delete(t.Context(), "two"), r.Store.Put(t.Context(), "numbers/three", nil)); err != nil {
		t.Fatal(err)
	}
	r.Store = readOnly{r.Store}
	n := 0
	err := r.Load(t.Context(), func(string, int) error { n++; return nil })
	if err != nil || n != 1 {
		t.Errorf("%d used, error %v", n, err)
	}
}
