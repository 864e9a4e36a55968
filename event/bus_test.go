package event

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ctx10(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestIdentifiersAcrossRestarts(t *testing.T) {
	s := memstore.New()
	var last uint64
	for start := range 3 {
		b, err := Open(t.Context(), s, 8)
		if err != nil {
			t.Fatal(err)
		}
		first := b.Publish("a", nil)
		if first <= last {
			t.Fatalf("start %d: first identifier %d is not above %d", start, first, last)
		}
		if Epoch(first) != uint64(start+1) {
			t.Errorf("start %d: epoch %d", start, Epoch(first))
		}
		last = b.Publish("b", nil)
		if last != first+1 || b.Last() != last {
			t.Errorf("identifiers %d, %d, last %d: want no gap", first, last, b.Last())
		}
		if last >= 1<<53 {
			t.Errorf("identifier %d does not fit a float64", last)
		}
	}
}

func TestOpenRefusesBadEpoch(t *testing.T) {
	for _, value := range []string{"many", "2097151"} {
		s := memstore.New()
		if err := s.Put(t.Context(), "event/epoch", []byte(value)); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), s, 8); err == nil {
			t.Errorf("stored epoch %q was accepted", value)
		}
	}
	s := memstore.New()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), s, 8); !errors.Is(err, store.ErrClosed) {
		t.Errorf("closed store: %v", err)
	}
}

func TestOrderAndAttributes(t *testing.T) {
	b := NewBus(1, 8)
	attrs := map[string]int{"n": 1}
	b.Publish("x", attrs)
	attrs["n"] = 2
	b.Publish("y", attrs)
	b.Publish("z", make(chan int)) // cannot be encoded: the event is published without attributes
	s := b.Subscribe(0)
	for i, want := range []struct{ kind, attrs string }{{"x", `{"n":1}`}, {"y", `{"n":2}`}, {"z", ""}} {
		e, err := s.Next(ctx10(t))
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind != want.kind || string(e.Attrs) != want.attrs || e.At.IsZero() {
			t.Errorf("event %d: %+v", i, e)
		}
		if _, err := json.Marshal(e); err != nil {
			t.Errorf("event %d: %v", i, err)
		}
	}
}

func TestOverflowIsTold(t *testing.T) {
	b := NewBus(1, 4)
	first := b.Publish("0", nil)
	s := b.Subscribe(first)
	for range 10 {
		b.Publish("n", nil)
	}
	_, err := s.Next(ctx10(t))
	var missed *MissedError
	if !errors.As(err, &missed) {
		t.Fatalf("error %v, want a MissedError", err)
	}
	if missed.After != first || missed.Next != b.Last()-3 {
		t.Errorf("missed %+v, last is %d", missed, b.Last())
	}
	for want := missed.Next; want <= b.Last(); want++ {
		if e, err := s.Next(ctx10(t)); err != nil || e.ID != want {
			t.Fatalf("after the gap: %+v, %v, want %d", e, err, want)
		}
	}
}

func TestSubscribeAfterAnotherEpoch(t *testing.T) {
	old := NewBus(1, 4)
	last := old.Publish("old", nil)
	b := NewBus(2, 4)
	for _, after := range []uint64{last, b.Last() + 100} {
		s := b.Subscribe(after)
		_, err := s.Next(ctx10(t))
		if missed := new(MissedError); !errors.As(err, &missed) {
			t.Fatalf("after %d: error %v, want a MissedError", after, err)
		}
		id := b.Publish("new", nil)
		for {
			e, err := s.Next(ctx10(t))
			if err != nil {
				t.Fatal(err)
			}
			if e.ID == id {
				break
			}
		}
	}
}

func TestWaitingSubscribers(t *testing.T) {
	b := NewBus(3, 64)
	var readers sync.WaitGroup
	const n, events = 4, 200
	for range n {
		s := b.Subscribe(b.Last())
		readers.Go(func() {
			var last uint64
			for {
				e, err := s.Next(ctx10(t))
				missed := new(MissedError)
				switch {
				case errors.As(err, &missed):
					last = missed.Next - 1
				case errors.Is(err, ErrClosed):
					if last != b.Last() {
						t.Errorf("closed at %d, last event is %d", last, b.Last())
					}
					return
				case err != nil:
					t.Error(err)
					return
				case last != 0 && e.ID != last+1:
					t.Errorf("event %d after %d without a MissedError", e.ID, last)
					return
				default:
					last = e.ID
				}
			}
		})
	}
	for range events {
		b.Publish("n", nil)
	}
	b.Close()
	b.Close()
	readers.Wait()
}

func TestNextObservesContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := NewBus(1, 4).Subscribe(0).Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
