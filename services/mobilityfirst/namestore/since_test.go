package namestore

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// Names are found by the time at which they were written, however many there are, until the caller
// stops.
func TestSince(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := open(t, Options{Dir: t.TempDir(), Now: func() time.Time { return now }})
	const many = pageSize + 100
	done := make(chan error, many)
	for who := range many {
		if who == many/2 {
			for range many / 2 {
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			}
			now = now.Add(time.Hour)
		}
		if err := s.Start(sign(t, who, 1, time.Now().Add(time.Hour), 1), func(_ bool, err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
	}
	for range many - many/2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	since := func(when time.Time, most int) (all []frame.GUID) {
		t.Helper()
		if err := s.Since(t.Context(), when, frame.GUID{}, func(name frame.GUID, _ time.Time) bool { all = append(all, name); return len(all) < most }); err != nil {
			t.Fatal(err)
		}
		return all
	}
	all := since(time.Time{}, many+1)
	slices.SortFunc(all, func(a, b frame.GUID) int { return slices.Compare(a[:], b[:]) })
	if n := len(slices.Compact(all)); n != many {
		t.Errorf("%d names, want %d", n, many)
	}
	if n := len(since(now.Add(-time.Minute), many)); n != many-many/2 {
		t.Errorf("%d names of the last minute, want %d", n, many-many/2)
	}
	if n := len(since(time.Time{}, 10)); n != 10 {
		t.Errorf("%d names, though 10 were enough", n)
	}
}
