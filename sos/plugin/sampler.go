package plugin

import (
	"time"
)

// maxSamples bounds what is remembered of one session's course.
const maxSamples = 128

// Sample is the state of a transfer at one time.
type Sample struct {
	At          time.Time `json:"at"`
	BytesUp     uint64    `json:"bytes_up" doc:"From the client so far"`
	BytesDown   uint64    `json:"bytes_down" doc:"To the client so far"`
	Retransmits uint64    `json:"retransmits" doc:"TCP segments sent again between the agents so far"`
}

// sampler keeps a session's course in bounded memory: when it is full it drops
// every other sample and takes new ones half as often.
type sampler struct {
	samples []Sample
	every   time.Duration
	// The last two that were added, kept or not.
	before, last Sample
}

func (s *sampler) add(x Sample) {
	s.before, s.last = s.last, x
	if n := len(s.samples); n > 0 && x.At.Sub(s.samples[n-1].At) < s.every {
		return
	}
	if len(s.samples) == maxSamples {
		for i := range maxSamples / 2 {
			s.samples[i] = s.samples[2*i]
		}
		s.samples = s.samples[:maxSamples/2]
		s.every = max(2*s.every, 2*time.Second) - 100*time.Millisecond
	}
	s.samples = append(s.samples, x)
}

// rate is what the session carried between the last two samples, both directions
// together, in bit/s; 0 until there are two.
func (s *sampler) rate() float64 {
	seconds := s.last.At.Sub(s.before.At).Seconds()
	was, is := s.before.BytesUp+s.before.BytesDown, s.last.BytesUp+s.last.BytesDown
	if s.before.At.IsZero() || seconds <= 0 || is < was {
		return 0
	}
	return float64(is-was) * 8 / seconds
}
