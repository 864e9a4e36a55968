package loadgen

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Options describes a load.
type Options struct {
	// Network and Address are where the controller listens: tcp or unix.
	Network, Address string
	// Switches is the number of switches, and Hosts that of the hosts at each, which share Ports
	// ports.
	Switches, Hosts, Ports int
	// Window is the number of packets that each switch has in flight: 1 measures latency.
	Window int
	// Warmup is how long the load runs before the measurement, and Duration how long the
	// measurement lasts.
	Warmup, Duration time.Duration
	// Settle is how long to wait once the switches are connected. Controllers that look for links
	// learn hosts only after that.
	Settle time.Duration
	// FirstDPID is the first switch's datapath identifier.
	FirstDPID uint64
	// OnBegin and OnEnd, if set, are called when the measurement begins and ends.
	OnBegin, OnEnd func() `json:"-"`
}

func (o Options) withDefaults() Options {
	o.Network = cmp.Or(o.Network, "tcp")
	o.Switches = cmp.Or(o.Switches, 1)
	o.Hosts = cmp.Or(o.Hosts, 100)
	o.Ports = cmp.Or(o.Ports, 4)
	o.Window = cmp.Or(o.Window, 256)
	o.Warmup = cmp.Or(o.Warmup, time.Second)
	o.Duration = cmp.Or(o.Duration, 3*time.Second)
	o.FirstDPID = cmp.Or(o.FirstDPID, 1)
	return o
}

// Result holds the results of a measurement.
type Result struct {
	// Sent counts packet-ins, Answered the packet-outs that returned their packets, and FlowMods
	// flow-mods, all during the measurement.
	Sent, Answered, FlowMods uint64
	// Reordered counts answers that arrived after the answer to a later packet of the same switch.
	Reordered uint64
	Elapsed   time.Duration
	// Begin and End delimit the measurement.
	Begin, End time.Time
	// PerSwitch holds the number of answers to each switch.
	PerSwitch []uint64
	// Latencies holds sampled round-trip times in ascending order, at most maxSamples of each
	// switch.
	Latencies []time.Duration
}

// PerSecond returns the rate of answers.
func (r *Result) PerSecond() float64 { return float64(r.Answered) / r.Elapsed.Seconds() }

// Latency returns a quantile of the round-trip times; q is from 0 to 1.
func (r *Result) Latency(q float64) time.Duration {
	if len(r.Latencies) == 0 {
		return 0
	}
	return r.Latencies[min(int(q*float64(len(r.Latencies))), len(r.Latencies)-1)]
}

// Spread returns the largest number of answers of one switch divided by the smallest.
func (r *Result) Spread() float64 {
	lo, hi := slices.Min(r.PerSwitch), slices.Max(r.PerSwitch)
	return float64(hi) / float64(max(lo, 1))
}

// String returns the result on one line.
func (r *Result) String() string {
	return fmt.Sprintf("%d answers in %v: %.0f/s, latency p50 %v p99 %v, %d flow-mods, %d reordered, spread %.2f",
		r.Answered, r.Elapsed.Round(time.Millisecond), r.PerSecond(), r.Latency(0.5), r.Latency(0.99), r.FlowMods, r.Reordered, r.Spread())
}
