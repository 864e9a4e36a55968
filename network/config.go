package network

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// Config configures a Network. The zero value listens nowhere and uses the defaults.
type Config struct {
	// Listen holds the TCP addresses that switches connect to.
	Listen []string
	// Listeners holds listeners that are already open, for instance in a network namespace. Run
	// closes them.
	Listeners []net.Listener
	// TLS, if set, is used on every listener. It should request client certificates.
	TLS *tls.Config
	// BindCertificates restricts a switch to the datapath identifiers that its certificate names:
	// as common name or as alternative DNS name, in one of the forms of openflow.ParseDatapathID,
	// or by its entry in Names.
	BindCertificates bool
	// Names holds the operator's names of the switches.
	Names map[openflow.DatapathID]string
	// Log receives the log; nil discards it.
	Log *slog.Logger
	// Publish, if set, receives events with their names, for the event bus. Frequent events of one
	// port or switch are left out.
	Publish func(kind string, attrs any)
	// Overrides replace the capabilities that switches report. The entry of switch 0 applies to
	// every switch that has no entry of its own.
	Overrides map[openflow.DatapathID]Override
	// Generation distinguishes this start of the controller in cookies; zero takes it from the
	// clock.
	Generation uint16

	// CompareInterval is the time between two comparisons of a switch's rules, groups and meters
	// with the declared ones. Negative means to compare only when a switch reports that it has
	// removed a rule which is still declared.
	CompareInterval time.Duration

	// Role is the role that the controller requests from every switch. With RoleNoChange, the
	// default, it requests none and has the role equal.
	Role openflow.Role

	// EchoInterval is the longest time between two rounds of echo requests, and EchoTimeout the
	// silence after which a session ends.
	EchoInterval, EchoTimeout time.Duration
	// RequestTimeout bounds each request to a switch, and HandshakeTimeout the set-up of a session
	// as a whole.
	RequestTimeout, HandshakeTimeout time.Duration
	// MaxSwitches bounds the number of sessions.
	MaxSwitches int
	// MaxPorts bounds the number of ports of one switch. A switch with more is refused.
	MaxPorts int
	// Memory bounds the memory, in bytes, that the sessions of all switches together take beyond a
	// share of 256 KiB each. It counts replies until they have been used, output that switches have
	// not read, and held packets. When it is used up, the session that takes most is ended.
	Memory int64

	// HoldLimit bounds the number of packets held on one switch.
	HoldLimit int
	// PacketOutBytes bounds the packet-outs queued for one switch, in bytes. Packet-outs that do not
	// fit are dropped and counted.
	PacketOutBytes int

	// ForwardIdle is the idle timeout of default forwarding's rules.
	ForwardIdle time.Duration
	// ForwardRules bounds the number of default forwarding's rules on one switch.
	ForwardRules int
	// ForwardMetric is the metric that default forwarding's paths minimise.
	ForwardMetric Metric
	// Proactive forwards ordinary packets by rules for each destination, over all equally good
	// paths, instead of rules for each pair of hosts that communicate. ForwardMetric must be hops
	// or capacity then. ForwardUnequal also uses longer paths, as long as each hop leads nearer to
	// the destination.
	Proactive, ForwardUnequal bool
	// ForwardPrefixes maps a prefix to the switch behind which all of its addresses are. Every other
	// switch has a single rule for the prefix.
	ForwardPrefixes map[netip.Prefix]openflow.DatapathID
	// DisableForwarding leaves default forwarding out of the chain.
	DisableForwarding bool

	// IgnoreVLAN makes a MAC address one host in all VLANs.
	IgnoreVLAN bool
	// Subnets holds the subnets whose addresses are learned from any IP packet.
	Subnets []netip.Prefix
	// Pinned holds hosts whose place never changes, by address.
	Pinned map[netip.Addr]Pin

	// PortRoles holds the roles of ports, and AccessHosts is the number of hosts that may be
	// behind a port with role access.
	PortRoles   map[PortRef]PortRole
	AccessHosts int
	// HostConfirm is how long a host may take to answer at its old port, after a packet from another
	// port has claimed that the host is there, or that another host has its address.
	HostConfirm time.Duration
	// HostGrace is how long a claim about a host waits for the host's switch, if that has
	// disconnected or reconnected a moment ago, so that the host can be probed. After the start, a
	// claim waits three times as long for a switch that is expected to connect. Zero means
	// hosts.DefaultGrace; a negative value means not to wait.
	HostGrace time.Duration
	// Remembered holds the hosts that were known before the start. Remember, if set, stores the
	// changes since its last call for the next start. It is called every ten seconds at most, and
	// when Run ends. Changes that it fails to store are passed to it again.
	Remembered []HostRecord
	Remember   func(ctx context.Context, changed []HostNote) error

	// DiscoveryInterval is the time between two probes of a link, and DiscoveryTimeout the age at
	// which an unconfirmed link counts as down.
	DiscoveryInterval, DiscoveryTimeout time.Duration
	// DiscoverySettle is how long a new port is probed before hosts may be behind it.
	DiscoverySettle time.Duration
	// LatencyWindow is the number of probes over which a link's latency is smoothed.
	LatencyWindow int
	// StatsInterval is the time between two readings of port counters.
	StatsInterval time.Duration
	// Measure selects the source of port counters. SFlow is the UDP address at which sFlow datagrams
	// are received, if Measure includes sFlow. SFlowConn, if set, is used instead of SFlow; Run
	// closes it.
	Measure   Measure
	SFlow     string
	SFlowConn net.PacketConn
	// Capacities holds, for a port, the capacity of the link that leaves by it, in bits per second.
	// It replaces the speed that the switch reports for the port.
	Capacities map[PortRef]uint64
}

// Override replaces the capabilities that a switch reports.
type Override struct {
	// L2Rewrite means that the switch rewrites Ethernet and VLAN fields only.
	L2Rewrite bool
	// FullRewrite means that the switch rewrites every field, whatever it reports.
	FullRewrite bool
	// NoBundles means that the switch must not be sent bundles.
	NoBundles bool
	// Layout, if known, gives the pipeline's tables, whatever the switch reports.
	Layout rule.Layout
}

// Measure is the source of port counters.
type Measure uint8

const (
	// MeasurePoll requests the counters from the switches.
	MeasurePoll Measure = iota
	// MeasureSFlow uses the counters that switches send by sFlow.
	MeasureSFlow
	// MeasureBoth uses both sources; requested counters take precedence.
	MeasureBoth
)

// DefaultMaxPorts is more than any hardware switch has. It is also the number of outputs that fit
// into one message, such as the rule that floods to all ports.
const DefaultMaxPorts = 4000

// withDefaults returns the configuration with the defaults filled in.
func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Generation == 0 {
		c.Generation = uint16(time.Now().Unix()) | 1
	}
	c.EchoInterval = cmp.Or(c.EchoInterval, 5*time.Second)
	c.EchoTimeout = cmp.Or(c.EchoTimeout, 3*c.EchoInterval)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 10*time.Second)
	c.HandshakeTimeout = cmp.Or(c.HandshakeTimeout, 30*time.Second)
	c.MaxSwitches = cmp.Or(c.MaxSwitches, 4096)
	c.MaxPorts = cmp.Or(c.MaxPorts, DefaultMaxPorts)
	c.Memory = cmp.Or(c.Memory, 64<<20)
	c.HoldLimit = cmp.Or(c.HoldLimit, 4096)
	c.PacketOutBytes = cmp.Or(c.PacketOutBytes, 1<<20)
	c.ForwardIdle = cmp.Or(c.ForwardIdle, 60*time.Second)
	c.ForwardRules = cmp.Or(c.ForwardRules, 100000)
	c.AccessHosts = cmp.Or(c.AccessHosts, 16)
	c.HostConfirm = cmp.Or(c.HostConfirm, 300*time.Millisecond)
	c.DiscoveryInterval = cmp.Or(c.DiscoveryInterval, time.Second)
	c.DiscoveryTimeout = cmp.Or(c.DiscoveryTimeout, 3*c.DiscoveryInterval+c.DiscoveryInterval/2)
	c.DiscoverySettle = cmp.Or(c.DiscoverySettle, time.Second)
	c.StatsInterval = cmp.Or(c.StatsInterval, 5*time.Second)
	c.CompareInterval = cmp.Or(c.CompareInterval, 30*time.Second)
	return c
}
