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

// Config says how a Network works. The zero value listens nowhere and uses the
// defaults.
type Config struct {
	// Listen are the TCP addresses switches connect to.
	Listen []string
	// Listeners are already open and are closed by Run, for instance in a namespace.
	Listeners []net.Listener
	// TLS, if set, is used on every listener. It should ask for client certificates.
	TLS *tls.Config
	// BindCertificates lets a switch use only a datapath identifier that its
	// certificate names: as common name or as alternative DNS name, in one of the
	// forms of openflow.ParseDatapathID, or by its entry in Names.
	BindCertificates bool
	// Names are what operators call the switches.
	Names map[openflow.DatapathID]string
	// Log receives the log; nil discards it.
	Log *slog.Logger
	// Publish, if set, receives every event under its name, for the event bus.
	Publish func(kind string, attrs any)
	// Overrides replace what switches say about their capabilities, by switch;
	// the entry of switch 0 is for all others.
	Overrides map[openflow.DatapathID]Override
	// Generation distinguishes this controller start in cookies; zero takes it
	// from the clock.
	Generation uint16

	// Role is asked of every switch; RoleNoChange, the default, leaves the role
	// at equal.
	Role openflow.Role

	// EchoInterval is the silence after which a switch is asked for a sign of
	// life, EchoTimeout the silence after which its session ends.
	EchoInterval, EchoTimeout time.Duration
	// RequestTimeout bounds each request to a switch, HandshakeTimeout all of a
	// session's set-up.
	RequestTimeout, HandshakeTimeout time.Duration
	// MaxSwitches bounds the sessions.
	MaxSwitches int
	// MaxPorts bounds the ports of one switch. One that has more is refused.
	MaxPorts int
	// Memory bounds what all switches together take, beyond a share of 256 KiB for each: for
	// replies until they have been used, output that they have not read, packets held for
	// services. Where it is used up, the session is ended that takes most.
	Memory int64

	// HoldLimit bounds the packets held for services on one switch.
	HoldLimit int
	// PacketOutBytes bounds the packet-outs that wait for one switch, in bytes;
	// what does not fit is dropped and counted.
	PacketOutBytes int

	// ForwardIdle is the idle timeout of default forwarding's rules.
	ForwardIdle time.Duration
	// ForwardRules bounds default forwarding's rules on one switch.
	ForwardRules int
	// ForwardMetric is what default forwarding's paths minimise.
	ForwardMetric Metric
	// Proactive has rules by destination lead ordinary packets, over all ways that are equally
	// good, instead of rules for each pair of hosts that talk. ForwardMetric has to be hops or
	// capacity then. ForwardUnequal takes longer ways, too, as long as each step leads nearer.
	Proactive, ForwardUnequal bool
	// ForwardPrefixes are the switches behind which all addresses of a prefix are: other
	// switches have one rule for all of them.
	ForwardPrefixes map[netip.Prefix]openflow.DatapathID
	// DisableForwarding leaves default forwarding out of the chain.
	DisableForwarding bool

	// IgnoreVLAN makes a MAC address one host whatever VLAN it is seen in.
	IgnoreVLAN bool
	// Subnets are those whose addresses are learned from any IP packet.
	Subnets []netip.Prefix
	// Pinned are hosts whose place never changes, by address.
	Pinned map[netip.Addr]Pin

	// PortRoles are the roles of ports that have one, and AccessHosts is how many hosts
	// may be behind a port of role access.
	PortRoles   map[PortRef]PortRole
	AccessHosts int
	// HostConfirm is how long a host may take to answer where it was when it, or its
	// address, is said to be elsewhere.
	HostConfirm time.Duration
	// HostGrace is for how long what is said of hosts waits for their switch, which has left
	// or come back a moment ago, so that they can be asked; three times as long for one that
	// is expected after the start. Zero means hosts.DefaultGrace, below zero not to wait.
	HostGrace time.Duration
	// Remembered are hosts that were known before the start, and Remember, if set, keeps
	// for the next start what has changed since it was called last. It is called every ten
	// seconds at most, and when Run ends; what it could not keep is given to it again.
	Remembered []HostRecord
	Remember   func(ctx context.Context, changed []HostNote) error

	// DiscoveryInterval is the time between two probes of a link, and
	// DiscoveryTimeout the age at which an unconfirmed link is taken down.
	DiscoveryInterval, DiscoveryTimeout time.Duration
	// DiscoverySettle is how long a new port is probed before hosts may stand
	// behind it.
	DiscoverySettle time.Duration
	// LatencyWindow is the number of probes over which a link's latency is smoothed.
	LatencyWindow int
	// StatsInterval is the time between two readings of port counters.
	StatsInterval time.Duration
	// Measure is where readings of port counters come from. For sFlow, SFlow is the
	// UDP address where it is received; SFlowConn, if set, is already open and is
	// closed by Run.
	Measure   Measure
	SFlow     string
	SFlowConn net.PacketConn
	// Capacities are those of links leaving by these ports, in bits per second,
	// where the port's own speed is not to be used.
	Capacities map[PortRef]uint64
}

// Override replaces what a switch says about its capabilities.
type Override struct {
	// L2Rewrite says that the switch rewrites Ethernet and VLAN fields only.
	L2Rewrite bool
	// FullRewrite says that the switch rewrites every field, whatever it says.
	FullRewrite bool
	// NoBundles says that the switch must not be sent bundles.
	NoBundles bool
	// Layout, if known, is where the pipeline's tables stand, whatever the switch says.
	Layout rule.Layout
}

// Measure is where readings of port counters come from.
type Measure uint8

const (
	// MeasurePoll asks switches for them.
	MeasurePoll Measure = iota
	// MeasureSFlow takes those that switches send by sFlow.
	MeasureSFlow
	// MeasureBoth does both; those that were asked for come first.
	MeasureBoth
)

// DefaultMaxPorts is more than any switch of hardware has, and as many as one message
// can name, as that of the group address does which goes out of all ports.
const DefaultMaxPorts = 4000

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
	return c
}
