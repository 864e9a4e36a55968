package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/store"
)

// timeout is how long a test waits for a condition.
const timeout = time.Minute

// Run tests the stores that open returns. Each must be empty; the test closes them.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	t.Helper()
	cases := []struct {
		name string
		test func(context.Context, *testing.T, store.Store)
	}{
		{"get, put, delete", getPutDelete},
		{"list", list},
		{"values are copies", copies},
		{"apply is all or nothing", apply},
		{"racing creators", race},
		{"watch", watch},
		{"a slow watcher is let go", slowWatcher},
		{"bad keys", badKeys},
		{"after close", closed},
		{"ended context", endedContext},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), 3*timeout)
			defer cancel()
			c.test(ctx, t, s)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

func getPutDelete(ctx context.Context, t *testing.T, s store.Store) {
	_, err := s.Get(ctx, "a/b")
	wantErr(t, "get of nothing", err, store.ErrNotFound)
	wantErr(t, "delete of nothing", s.Delete(ctx, "a/b"), store.ErrNotFound)
	must(t, s.Put(ctx, "a/b", []byte("one")))
	first, err := s.Get(ctx, "a/b")
	must(t, err)
	must(t, s.Put(ctx, "a/b", []byte{}))
	second, err := s.Get(ctx, "a/b")
	must(t, err)
	if string(first.Value) != "one" || first.Key != "a/b" || second.Value == nil || len(second.Value) != 0 {
		t.Errorf("got %+v, then %+v", first, second)
	}
	if first.Revision <= 0 || second.Revision <= first.Revision {
		t.Errorf("revisions %d, %d: want them positive and growing", first.Revision, second.Revision)
	}
	must(t, s.Delete(ctx, "a/b"))
	_, err = s.Get(ctx, "a/b")
	wantErr(t, "get after delete", err, store.ErrNotFound)
}

func list(ctx context.Context, t *testing.T, s store.Store) {
	for _, k := range []string{"b/2", "a/1", "b/10", "bb", "b/1/x"} {
		must(t, s.Put(ctx, k, []byte(k)))
	}
	for _, c := range []struct {
		prefix string
		want   []string
	}{
		{"b/", []string{"b/1/x", "b/10", "b/2"}},
		{"", []string{"a/1", "b/1/x", "b/10", "b/2", "bb"}},
		{"c", nil},
	} {
		entries, err := s.List(ctx, c.prefix)
		must(t, err)
		var got []string
		for _, e := range entries {
			got = append(got, e.Key)
			if string(e.Value) != e.Key {
				t.Errorf("value of %q is %q", e.Key, e.Value)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("list %q: %q, want %q", c.prefix, got, c.want)
		}
	}
}

func copies(ctx context.Context, t *testing.T, s store.Store) {
	value := []byte("one")
	must(t, s.Put(ctx, "k", value))
	value[0] = 'X'
	e, err := s.Get(ctx, "k")
	must(t, err)
	e.Value[1] = 'X'
	e, err = s.Get(ctx, "k")
	must(t, err)
	if string(e.Value) != "one" {
		t.Errorf("stored value is %q: it shares memory with a caller", e.Value)
	}
}

func apply(ctx context.Context, t *testing.T, s store.Store) {
	must(t, s.Apply(ctx, store.OpCreate("a", []byte("1")), store.OpPut("b", []byte("1")), store.OpDelete("nothing")))
	a, err := s.Get(ctx, "a")
	must(t, err)
	wantErr(t, "create what exists", s.Apply(ctx, store.OpPut("b", []byte("2")), store.OpCreate("a", nil)), store.ErrConflict)
	wantErr(t, "update of a wrong revision", s.Apply(ctx, store.OpPut("b", []byte("2")), store.OpUpdate("a", nil, a.Revision+1)), store.ErrConflict)
	wantErr(t, "update of nothing", s.Apply(ctx, store.OpUpdate("c", nil, a.Revision)), store.ErrConflict)
	if e, err := s.Get(ctx, "b"); err != nil || string(e.Value) != "1" {
		t.Errorf("b is %q (%v): a refused Apply did half of its work", e.Value, err)
	}
	must(t, s.Apply(ctx, store.OpUpdate("a", []byte("2"), a.Revision), store.OpDelete("b")))
	entries, err := s.List(ctx, "")
	must(t, err)
	if len(entries) != 1 || string(entries[0].Value) != "2" {
		t.Errorf("after the last Apply: %v", entries)
	}
	if err := s.Apply(ctx, store.OpPut("x", nil), store.OpPut("x", nil)); err == nil {
		t.Error("the same key twice in one Apply was accepted")
	}
	must(t, s.Apply(ctx))
}

func race(ctx context.Context, t *testing.T, s store.Store) {
	const n = 16
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { errs[i] = s.Apply(ctx, store.OpCreate("only", fmt.Append(nil, i))) })
	}
	wg.Wait()
	winners := 0
	for _, err := range errs {
		if err == nil {
			winners++
		} else if !errors.Is(err, store.ErrConflict) {
			t.Error(err)
		}
	}
	if winners != 1 {
		t.Errorf("%d of %d created the same key, want one", winners, n)
	}
}

func next(t *testing.T, ch <-chan store.Change) store.Change {
	t.Helper()
	select {
	case c, ok := <-ch:
		if !ok {
			t.Fatal("the watch ended")
		}
		return c
	case <-time.After(timeout):
		t.Fatal("no change was reported")
	}
	panic("unreachable")
}

func watch(ctx context.Context, t *testing.T, s store.Store) {
	must(t, s.Put(ctx, "w/before", nil))
	watchCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	ch, err := s.Watch(watchCtx, "w/")
	must(t, err)
	must(t, s.Put(ctx, "other", nil))
	must(t, s.Put(ctx, "w/1", []byte("one")))
	must(t, s.Apply(ctx, store.OpPut("w/1", []byte("two")), store.OpDelete("w/nothing")))
	must(t, s.Delete(ctx, "w/1"))
	first, second, third := next(t, ch), next(t, ch), next(t, ch)
	if first.Key != "w/1" || string(first.Value) != "one" || first.Deleted ||
		string(second.Value) != "two" || !third.Deleted || third.Key != "w/1" || third.Value != nil {
		t.Errorf("reported: %+v, %+v, %+v", first, second, third)
	}
	if first.Revision >= second.Revision || second.Revision >= third.Revision {
		t.Errorf("revisions %d, %d, %d do not grow", first.Revision, second.Revision, third.Revision)
	}
	cancel()
	waitClosed(t, ch)
}

func waitClosed(t *testing.T, ch <-chan store.Change) {
	t.Helper()
	deadline := time.After(timeout)
	for {
		select {
		case _, ok := <-ch:
			if !ok {
				return
			}
		case <-deadline:
			t.Fatal("the channel of a watch that should have ended is still open")
		}
	}
}

func slowWatcher(ctx context.Context, t *testing.T, s store.Store) {
	ch, err := s.Watch(ctx, "")
	must(t, err)
	for range 20 {
		ops := make([]store.Op, 100)
		for i := range ops {
			ops[i] = store.OpPut(fmt.Sprintf("k/%d", i), nil)
		}
		must(t, s.Apply(ctx, ops...))
	}
	waitClosed(t, ch)
}

func badKeys(ctx context.Context, t *testing.T, s store.Store) {
	for _, k := range []string{"", "/a", "a/", "a//b", "a\x00b", string(make([]byte, 2000))} {
		if err := s.Put(ctx, k, nil); err == nil {
			t.Errorf("put of key %.20q was accepted", k)
		}
		if _, err := s.Get(ctx, k); err == nil || errors.Is(err, store.ErrNotFound) {
			t.Errorf("get of key %.20q: %v", k, err)
		}
	}
	entries, err := s.List(ctx, "")
	must(t, err)
	if len(entries) != 0 {
		t.Errorf("a refused key was stored: %v", entries)
	}
}

func closed(ctx context.Context, t *testing.T, s store.Store) {
	ch, err := s.Watch(ctx, "")
	must(t, err)
	must(t, s.Close())
	waitClosed(t, ch)
	_, err = s.Get(ctx, "a")
	wantErr(t, "get", err, store.ErrClosed)
	_, err = s.List(ctx, "")
	wantErr(t, "list", err, store.ErrClosed)
	wantErr(t, "put", s.Put(ctx, "a", nil), store.ErrClosed)
	wantErr(t, "delete", s.Delete(ctx, "a"), store.ErrClosed)
	_, err = s.Watch(ctx, "")
	wantErr(t, "watch", err, store.ErrClosed)
}

func endedContext(ctx context.Context, t *testing.T, s store.Store) {
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.Put(ended, "a", nil); err == nil {
		t.Error("put under an ended context was accepted")
	}
	_, err := s.Get(ctx, "a")
	wantErr(t, "get", err, store.ErrNotFound)
}
