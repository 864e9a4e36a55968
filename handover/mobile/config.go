package mobile

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/handover/mobile/datapath"
	"github.com/sluice-net/sluice/handover/mobile/policy"
	"github.com/sluice-net/sluice/openflow"
)

// Config is all that a daemon is told.
type Config struct {
	// Device is the name under which the network knows the device.
	Device string
	// Key is the device's key, by which it signs requests; empty is none.
	Key []byte
	// StateDir holds what must survive the daemon: the lease, and what has to be
	// put back.
	StateDir string
	// Socket is the path of the control socket; empty is none.
	Socket string
	// SocketGroup is the group that may use the socket, beside its owner; -1 is
	// none.
	SocketGroup int

	// VNI is the virtual interface, VNIMAC its address and MTU its size; 0 is
	// what the datapath chooses.
	VNI    string
	VNIMAC openflow.MAC
	MTU    int
	// Interfaces carry the VNI's packets, in the order of preference.
	Interfaces []Interface
	// Overlap is how long after a move the old interface is still listened to.
	Overlap time.Duration

	// Policy says when to move.
	Policy policy.Rules
	// Probe is how often the gateway is asked for on each interface without a
	// cause, and over how many times loss is counted; an Interval of 0 is never.
	Probe Probe

	// HostName is told to DHCP servers; empty is not.
	HostName string
	// Retransmit is the first wait for a DHCP answer.
	Retransmit time.Duration
	// AttachTimeout bounds one attempt to join a network.
	AttachTimeout time.Duration
	// Release gives the lease back at the end.
	Release bool
	// Sign adds the device's signature to a DHCP message; nil is none.
	Sign func(m *dhcpv4.DHCPv4, src openflow.MAC, now time.Time) error

	// Metric is that of the VNI's routes.
	Metric int
	// Resolver is the file for name servers; empty leaves them alone.
	Resolver string

	// Orders is where the network's orders come from; nil is nowhere.
	Orders OrderSource

	// Version is reported in the status.
	Version string
	// Log takes messages; nil discards them.
	Log *slog.Logger
}

// Interface is a physical interface that the daemon may use.
type Interface struct {
	Name string
	// Cost is what the policy compares by the criterion cost.
	Cost int
}

// Probe says how gateways are probed.
type Probe struct {
	Interval time.Duration
	Window   int
}

// withDefaults fills in what is zero.
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

// Validate says what makes a configuration impossible to run.
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
