package experiment

import (
	"math/rand/v2"
	"time"
)

// trafficMatrix is one of the dissertation's: who sends how much to whom, and when.
type trafficMatrix struct {
	name  string
	small float64 // the part of its flows that are small
	// largeMin and largeMax bound how large the others are, in time at the rate of a link.
	largeMin, largeMax time.Duration
}

// The two matrices of section 5.5.1.
var (
	matrix1 = trafficMatrix{"TM1", 0.8, 20 * time.Second, 50 * time.Second}
	matrix2 = trafficMatrix{"TM2", 0.7, 29 * time.Second, 62 * time.Second}
)

// matrixFlow is one transfer. Sizes are told by the time that they take at the rate of a link,
// so that a matrix is the same load at any rate.
type matrixFlow struct {
	from, to int           // hosts, as lab.FatTree numbers them, from 0
	start    time.Duration // after the first one may start
	work     time.Duration // at the rate of a link
	large    bool
}

// bytes is the flow's size where links have a rate in bit/s.
func (f matrixFlow) bytes(rate float64) int64 { return int64(f.work.Seconds() * rate / 8) }

// What the dissertation says of its flows, and what it leaves open: how large they are, only that small ones end within 11
// seconds. Large ones are so large in each matrix that plain TCP over hashed paths gets about the part of a link that it got
// there, 49.4 and 36.6 %, of what this machine carries (multipath-fattree). In the model, where nothing is lost, it gets more.
const (
	matrixFlows  = 540
	matrixHosts  = 54
	matrixGapMin = 500 * time.Millisecond
	matrixGapMax = 1000 * time.Millisecond
	smallWorkMin = 40 * time.Millisecond
	smallWorkMax = 4 * time.Second
)

// flows are n transfers between the hosts of a fat tree of k ports: one permutation after the
// other, in which each host sends to one of another rack and receives from one. All times are
// divided by pace, which makes the same load of shorter transfers. The gaps are those of 54 hosts;
// with more hosts they are shorter, so that each sends as often.
func (m trafficMatrix) flows(rng *rand.Rand, k, n int, pace float64) []matrixFlow {
	hosts, rack := k*k*k/4, k/2
	scaled := func(low, high time.Duration) time.Duration {
		return time.Duration(float64(low+time.Duration(rng.Int64N(int64(high-low)))) / pace)
	}
	var all []matrixFlow
	var at time.Duration
	for len(all) < n {
		to := permutation(rng, hosts, rack)
		for _, from := range rng.Perm(hosts)[:min(hosts, n-len(all))] {
			f := matrixFlow{from: from, to: to[from], start: at, work: scaled(smallWorkMin, smallWorkMax)}
			if f.large = rng.Float64() >= m.small; f.large {
				f.work = scaled(m.largeMin, m.largeMax)
			}
			all = append(all, f)
			at += scaled(matrixGapMin, matrixGapMax) * matrixHosts / time.Duration(hosts)
		}
	}
	return all
}

// permutation says to whom each host sends: nobody within its rack, and each to another. Whom
// chance has sent to its own rack changes with another until none is left.
func permutation(rng *rand.Rand, hosts, rack int) []int {
	to := rng.Perm(hosts)
	within := func(from int) bool { return from/rack == to[from]/rack }
	for from := range to {
		for within(from) {
			other := rng.IntN(hosts)
			if other/rack != to[from]/rack && from/rack != to[other]/rack {
				to[from], to[other] = to[other], to[from]
			}
		}
	}
	return to
}
