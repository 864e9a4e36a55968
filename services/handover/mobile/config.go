package mobile

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile/datapath"
	"github.com/sluice-net/sluice/services/handover/mobile/policy"
)

// Config is the configuration of a daemon.
type Config struct {
	// Device is the device's name in the network.
	Device string
	// StateDir is the directory of the data that must survive the daemon: the lease, and the changes
	// to the device that have to be undone.
	StateDir string
	// Socket is the path of the control socket; empty for none.
	Socket string
	// SocketGroup is the group that may use the socket, besides its owner; -1 for none.
	SocketGroup int

	// VNI is the name of the virtual interface, VNIMAC its MAC address and MTU its MTU in bytes. If
	// MTU is 0, the datapath chooses the MTU.
	VNI    string
	VNIMAC openflow.MAC
	MTU    int
	// Interfaces are the physical interfaces, in the order of preference.
	Interfaces []Interface
	// Overlap is how long after a move the device still receives on the old interface.
	Overlap time.Duration

	// Policy holds the rules by which the daemon chooses the interface.
	Policy policy.Rules
	// Probe sets how often the gateway is probed on each interface, and over how many probes the loss
	// is computed. An Interval of 0 disables probing.
	Probe Probe

	// HostName is sent to DHCP servers, unless it is empty.
	HostName string
	// Retransmit is the first wait for a DHCP answer.
	Retransmit time.Duration
	// AttachTimeout bounds one attempt to join a network.
	AttachTimeout time.Duration
	// Release reports whether the lease is released at the end.
	Release bool
	// Sign adds the device's signature to a DHCP message; nil if messages are not signed.
	Sign func(m *dhcpv4.DHCPv4, src openflow.MAC, now time.Time) error

	// Metric is the metric of the virtual interface's routes.
	Metric int
	// Resolver is the file for name servers; if it is empty they are not configured.
	Resolver string

	// Orders is the source of the network's orders; nil for none.
	Orders OrderSource

	// Version is shown in the status.
	Version string
	// Log receives log messages; nil discards them.
	Log *slog.Logger
}

// Interface is a physical interface that the daemon may use.
type Interface struct {
	Name string
	// Cost is compared by the policy's criterion cost.
	Cost int
}

// Probe holds the settings for probing gateways.
type Probe struct {
	Interval time.Duration
	Window   int
}

// withDefaults returns the configuration with defaults filled in for zero values.
func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.AttachTimeout <= 0 {
		c.AttachTimeout = 15 * time.Second
	}
	if c.Probe.Window <= 0 {
		c.Probe.Window = 20
	}
	return c
}

// Validate returns an error that lists all faults of the configuration, or nil.
func (c Config) Validate() error {
	var errs []error
	if len(c.Interfaces) == 0 || len(c.Interfaces) > datapath.MaxInterfaces {
		errs = append(errs, fmt.Errorf("%d interfaces: name 1 to %d", len(c.Interfaces), datapath.MaxInterfaces))
	}
	seen := map[string]bool{c.VNI: true}
	for _, i := range c.Interfaces {
		if i.Name == "" || seen[i.Name] {
			errs = append(errs, fmt.Errorf("interface %q: every interface once, and none named like the virtual one", i.Name))
		}
		seen[i.Name] = true
	}
	if c.VNI == "" || c.VNIMAC.IsZero() || c.VNIMAC.IsMulticast() {
		errs = append(errs, fmt.Errorf("virtual interface %q with address %v: it needs a name and a unicast address", c.VNI, c.VNIMAC))
	}
	if c.StateDir == "" {
		errs = append(errs, errors.New("no folder for state"))
	}
	return errors.Join(errs...)
}
