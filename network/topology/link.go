package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// PortRef identifies one port of one switch.
type PortRef struct {
	Switch openflow.DatapathID
	Port   uint32
}

// IsZero reports whether r is the zero PortRef.
func (r PortRef) IsZero() bool { return r == PortRef{} }

// String formats the port as "0000000000000001/3".
func (r PortRef) String() string { return fmt.Sprintf("%v/%d", r.Switch, r.Port) }

// Compare orders ports by switch, then by number.
func (r PortRef) Compare(o PortRef) int {
	return cmp.Or(cmp.Compare(r.Switch, o.Switch), cmp.Compare(r.Port, o.Port))
}

// Link is one direction of a link between two switch ports.
type Link struct {
	From, To PortRef
	// Latency is the measured one-way latency, zero while unknown.
	Latency time.Duration
	// Jitter is how much latency varies from one probe to the next (RFC 3550,
	// section 6.4.1), zero while unknown.
	Jitter time.Duration
	// Capacity is the speed in bits per second, zero while unknown.
	Capacity uint64
	// Declared is true if the capacity comes from the configuration and not from the ports'
	// speeds.
	Declared bool
	// Used is the measured load in bits per second.
	Used uint64
	// Loss is the measured share of packets that the link loses, without losses by full queues;
	// zero while unknown.
	Loss float64
}

// Available returns the unused capacity, zero while the capacity is unknown.
func (l Link) Available() uint64 { return l.Capacity - min(l.Used, l.Capacity) }

// Host is an end host as the controller has learned it.
type Host struct {
	MAC openflow.MAC
	// VLAN is the VLAN the host was seen in, zero for none.
	VLAN uint16
	// IPs are the addresses seen in its ARP, ND and IP packets.
	IPs []netip.Addr
	// At is the edge port behind which the host is.
	At   PortRef
	Seen time.Time
}

// Hop is one switch of a path, with the ports by which packets enter and leave.
type Hop struct {
	Switch  openflow.DatapathID
	In, Out uint32
}

// Output returns the port for an output action: to send a packet back out of its in-port, a
// switch needs the reserved port IN_PORT.
func (h Hop) Output() uint32 {
	if h.Out == h.In {
		return openflow.PortInPort
	}
	return h.Out
}

// Path is a path through the network. Empty Hops mean that there is none.
type Path struct {
	Hops    []Hop
	Latency time.Duration
	// Cost is the sum of the metric that the search minimised.
	Cost float64
}

// Metric selects the quantity that a path search minimises.
type Metric uint8

// The metrics that a path search can minimise.
const (
	// MetricHops counts links.
	MetricHops Metric = iota
	// MetricLatency sums measured latency.
	MetricLatency
	// MetricUtilisation prefers links with a small share of their capacity used.
	MetricUtilisation
	// MetricCapacity prefers fast links, by the inverse of their capacity.
	MetricCapacity
)

var metricNames = [...]string{"hops", "latency", "utilisation", "capacity"}

// String returns the name that ParseMetric accepts.
func (m Metric) String() string {
	if int(m) < len(metricNames) {
		return metricNames[m]
	}
	return fmt.Sprintf("metric(%d)", uint8(m))
}

// ParseMetric parses a metric's name.
func ParseMetric(s string) (Metric, error) {
	for i, n := range metricNames {
		if s == n {
			return Metric(i), nil
		}
	}
	return 0, fmt.Errorf("unknown path metric %q: want hops, latency, utilisation or capacity", s)
}
