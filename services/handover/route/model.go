package route

import (
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Latency is the model of a switch-over in one burst. L[i] is the time after which a device's
// packets can reach switch i of a branch, counted from when the changes are sent to all its
// switches at once. c holds the one-way latencies of the control connections, in the order of the
// branch from the join on, and l those of the links, l[i] between switches i and i+1.
//
//	L[0] = c[0];  L[i] = max(L[i-1] + l[i-1], c[i])
//
// Links that l does not contain count as zero.
func Latency(c, l []time.Duration) []time.Duration {
	out := make([]time.Duration, len(c))
	for i := range c {
		out[i] = c[i]
		if i > 0 {
			before := out[i-1]
			if i <= len(l) {
				before += l[i-1]
			}
			out[i] = max(before, c[i])
		}
	}
	return out
}

// BranchLatencies returns the latencies of the control connections and links along hops, as
// Latency takes them.
func BranchLatencies(t *network.Topology, hops []network.Hop, control func(openflow.DatapathID) time.Duration) (c, l []time.Duration) {
	for i, h := range hops {
		c = append(c, control(h.Switch))
		if i < len(hops)-1 {
			link, _ := t.LinkFrom(network.PortRef{Switch: h.Switch, Port: h.Out})
			l = append(l, link.Latency)
		}
	}
	return c, l
}

// WaveLatency is the model of a switch-over in waves. First the switches of the branch beyond the join
// are written. Meanwhile the join receives its change, but applies it only after the slowest switch
// has confirmed. WaveLatency returns the time after which a device's packets can be at the last switch
// of the branch, the edge switch.
func WaveLatency(c, l []time.Duration) time.Duration {
	if len(c) == 0 {
		return 0
	}
	var flight time.Duration
	for _, d := range l[:min(len(l), len(c)-1)] {
		flight += d
	}
	return 2*slices.Max(c) + c[0] + flight
}

// Establishment is the time T_c in which a device's connection is established, in its parts:
// association, DHCP, rules, and the latency between the device and its edge switch.
type Establishment struct{ Ta, Td, Tf, Te time.Duration }

// Total returns T_c = T_a + T_d + T_f + T_e.
func (e Establishment) Total() time.Duration { return e.Ta + e.Td + e.Tf + e.Te }

// Establish returns T_c by the model, without T_a: four DHCP messages between device and controller,
// T_d = 4(T_e + c_e) where ce is the control latency of the edge switch, and T_f = max(c_i) for
// all switches that get rules.
func Establish(te, ce time.Duration, c []time.Duration) Establishment {
	e := Establishment{Td: 4 * (te + ce), Te: te}
	for _, d := range c {
		e.Tf = max(e.Tf, d)
	}
	return e
}
