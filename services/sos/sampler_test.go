package sos

import (
	"testing"
	"time"
)

// TestSamplerRate checks that the present rate of a session is that between its latest two samples,
// also if these are not kept because the course is long.
func TestSamplerRate(t *testing.T) {
	var s sampler
	begin := time.Unix(1000, 0)
	if got := s.rate(); got != 0 {
		t.Errorf("rate of nothing: %v", got)
	}
	var up uint64
	for i := range 4 * maxSamples {
		up += 1000
		if i == 4*maxSamples-1 {
			up += 124_000
		}
		s.add(Sample{At: begin.Add(time.Duration(i) * time.Second), BytesUp: up - 500, BytesDown: 500})
		if i == 0 && s.rate() != 0 {
			t.Errorf("rate of one sample: %v", s.rate())
		}
	}
	if got := s.rate(); got != 1e6 {
		t.Errorf("rate: %v bit/s, want 1e6", got)
	}
	if len(s.samples) > maxSamples || s.samples[len(s.samples)-1].At.Equal(s.last.At) {
		t.Errorf("%d samples are kept, the last of %v", len(s.samples), s.samples[len(s.samples)-1].At)
	}
	s.add(Sample{At: s.last.At, BytesUp: up})
	if got := s.rate(); got != 0 {
		t.Errorf("rate within no time: %v", got)
	}
	s.add(Sample{At: s.last.At.Add(time.Second), BytesUp: 1})
	if got := s.rate(); got != 0 {
		t.Errorf("rate of counters that went back: %v", got)
	}
}
