package sos

import (
	"time"
)

// maxSamples bounds the number of samples kept of one session.
const maxSamples = 128

// Sample is the state of a transfer at one time.
type Sample struct {
	At          time.Time `json:"at"`
	BytesUp     uint64    `json:"bytes_up" doc:"From the client so far"`
	BytesDown   uint64    `json:"bytes_down" doc:"To the client so far"`
	Retransmits uint64    `json:"retransmits" doc:"TCP segments sent again between the agents so far"`
}

// sampler keeps the samples of a session in bounded memory: when it is full it drops every
// other sample, and takes new ones half as often.
type sampler struct {
	samples []Sample
	every   time.Duration
	// before and last are the last two samples that were added, kept or not.
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

// rate returns the rate between the last two samples, both directions together, in bit/s; 0
// until there are two.
func (s *sampler) rate() float64 {
	seconds := s.last.At.Sub(s.before.At).Seconds()
	before, last := s.before.BytesUp+s.before.BytesDown, s.last.BytesUp+s.last.BytesDown
	if s.before.At.IsZero() || seconds <= 0 || last < before {
		return 0
	}
	return float64(last-before) * 8 / seconds
}
