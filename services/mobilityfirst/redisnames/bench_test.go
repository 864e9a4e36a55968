package redisnames

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// records returns records of many names.
func records(b *testing.B, names int) []*record.Record {
	var all []*record.Record
	for range names {
		all = append(all, sign(b, somebody(), 1, 1))
	}
	return all
}

func BenchmarkWrite(b *testing.B) {
	s := open(b, three(b), Options{})
	var number, busy atomic.Uint64
	all := records(b, 4096)
	b.SetParallelism(1024)
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			n := number.Add(1)
			r := *all[n%uint64(len(all))] // which nobody has signed so: a store does not look
			r.Number = n
			switch err := s.Write(b.Context(), &r); {
			case errors.Is(err, record.ErrBusy):
				busy.Add(1)
			case err != nil && !errors.Is(err, record.ErrOld) && !errors.Is(err, ErrStored):
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(busy.Load())/float64(b.N), "busy/op")
}

func BenchmarkGet(b *testing.B) {
	s := open(b, three(b), Options{})
	var names []frame.GUID
	for _, r := range records(b, 4096) {
		if err := s.Write(b.Context(), r); err != nil {
			b.Fatal(err)
		}
		names = append(names, r.GUID())
	}
	var number atomic.Uint64
	b.SetParallelism(512)
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if n := number.Add(1); func() bool { _, found, err := s.Get(nil, names[n%uint64(len(names))]); return !found || err != nil }() {
				b.Error("a name is not there")
			}
		}
	})
}
