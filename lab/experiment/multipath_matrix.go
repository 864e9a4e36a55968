package experiment

import (
	"math/rand/v2"
	"time"
)

// trafficMatrix is a traffic matrix of the dissertation: who sends how much to whom, and when.
type trafficMatrix struct {
	name  string
	small float64 // share of its flows that are small
	// largeMin and largeMax bound the sizes of the large flows, given as the time at the rate of a
	// link.
	largeMin, largeMax time.Duration
}

// These are the two matrices of section 5.5.1.
var (
	matrix1 = trafficMatrix{"TM1", 0.8, 20 * time.Second, 50 * time.Second}
	matrix2 = trafficMatrix{"TM2", 0.7, 29 * time.Second, 62 * time.Second}
)

// matrixFlow is one transfer. Its size is given as the time at the rate of a link, so that a matrix
// is the same load at any rate.
type matrixFlow struct {
	from, to int           // hosts from 0, as lab.FatTree numbers them
	start    time.Duration // after the first flow may start
	work     time.Duration // time at the rate of a link
	large    bool
}

// bytes returns the flow's size for links of the given rate in bit/s.
func (f matrixFlow) bytes(rate float64) int64 { return int64(f.work.Seconds() * rate / 8) }

// These describe the dissertation's flows. The dissertation does not give their sizes, except that
// small flows end within 11 seconds. The sizes of large flows are chosen so that plain TCP over
// hashed paths reaches, of what this machine carries, about the share that it reached of a link
// there: 49.4 and 36.6 % in the two matrices (multipath-fattree). In the model, where nothing is
// lost, it reaches more.
const (
	matrixFlows  = 540
	matrixHosts  = 54
	matrixGapMin = 500 * time.Millisecond
	matrixGapMax = 1000 * time.Millisecond
	smallWorkMin = 40 * time.Millisecond
	smallWorkMax = 4 * time.Second
)

// flows returns n transfers between the hosts of a fat tree of k ports: one permutation after the
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

// permutation returns, for each host, the host that it sends to: one of another rack, and a
// different one for each sender. A host to which chance has assigned one of its own rack swaps with
// another host, until there is none left.
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
