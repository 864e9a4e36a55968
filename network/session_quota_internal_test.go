package network

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// ending returns an account whose session records why it is ended, and ends.
func ending(q *quota, why *error) *account {
	var a *account
	a = q.open(func(err error) {
		*why = err
		a.close()
	})
	return a
}

// TestQuotaEndsWhoTakesMost checks that each session has its share regardless of all others, and
// that when all memory is taken, the session that takes most is ended and not the one that asks
// for more.
func TestQuotaEndsWhoTakesMost(t *testing.T) {
	const limit = 4 << 20
	q := newQuota(limit)
	var endOfWorst, endOfOther, endOfLast error
	worst, other, last := ending(q, &endOfWorst), ending(q, &endOfOther), ending(q, &endOfLast)
	if !worst.tryTake(3<<20) || !other.tryTake(1<<20) {
		t.Fatal("memory is refused that is there")
	}
	if err := worst.take(2 << 20); !errors.Is(err, ErrBusy) {
		t.Errorf("who takes most is given more: %v", err)
	}
	if worst.tryTake(2<<20) || other.tryTake(2<<20) {
		t.Error("more than there is was taken")
	}
	if err := last.take(memoryShare); err != nil || endOfWorst != nil {
		t.Errorf("a share of its own: %v, and the other session ends: %v", err, endOfWorst)
	}
	if err := last.take(1 << 20); err != nil {
		t.Error(err)
	}
	if !errors.Is(endOfWorst, ErrBusy) || endOfOther != nil || endOfLast != nil {
		t.Errorf("ended are: %v, %v, %v; want only the first", endOfWorst, endOfOther, endOfLast)
	}
	if err := worst.take(1); err == nil {
		t.Error("a session that is ended takes more")
	}
	worst.release(3 << 20)
	worst.close()
	other.release(1 << 20)
	last.close()
	if taken, beyond := q.taken(); taken != 0 || beyond != 0 {
		t.Errorf("%d bytes are still taken, %d beyond the shares", taken, beyond)
	}
}

// TestQuotaWaitsForMemory checks that the reader of a reply waits for memory that others release,
// and ends no session if they do.
func TestQuotaWaitsForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuota(1 << 20)
		var end error
		first, second := ending(q, &end), ending(q, &end)
		if err := first.wait(1 << 20); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		time.AfterFunc(memoryTimeout/2, func() { first.release(1 << 20) })
		if err := second.wait(1 << 20); err != nil || end != nil {
			t.Errorf("got %v, and a session ends: %v", err, end)
		}
		if waited := time.Since(began); waited != memoryTimeout/2 {
			t.Errorf("waited for %v", waited)
		}
		if err := first.wait(memoryShare + 1<<18); err != nil || end != nil {
			t.Fatalf("got %v, and a session ends: %v", err, end)
		}
		if err := first.wait(1 << 18); err != nil {
			t.Error(err)
		}
		if end == nil {
			t.Error("who takes most is not ended, though it gives nothing back")
		}
	})
}
