package cinema

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
	"github.com/sluice-net/sluice/store"
)

// Name is the service's name in the API, in the keys of the store, and as the owner of rules.
const Name = "cinema"

// Defaults of Options.
const (
	DefaultShare  = 0.5
	defaultSettle = 10 * time.Second
)

// DefaultMedia is the default destination address of channels' datagrams (RFC 2544).
var DefaultMedia = netip.AddrFrom4([4]byte{198, 19, 255, 1})

// Options holds what a Service needs.
type Options struct {
	Network kit.Network
	Rules   Owner
	Store   store.Store
	Bus     *event.Bus
	Log     *slog.Logger
	// AgentTLS holds the controller's certificate and the CA of the gateways; it is nil if they
	// run on this machine. Dial connects to gateways; nil is the default dialer.
	AgentTLS *tls.Config
	Dial     control.Dialer
	// ControlSubnets are the subnets in which a gateway that announces itself may have its
	// control address, besides the address from which it announces itself.
	ControlSubnets []netip.Prefix
	// Media is the destination address of channels' datagrams. No host has it.
	Media netip.Addr
	// Share is the share of each link that channels may take, from 0 to 1.
	Share float64
	// LinkMACs makes channels cross each link with a source MAC address that only this link has.
	LinkMACs bool
	// Settle is how long the service waits after a start for the gateways and switches that it
	// knew before.
	Settle time.Duration
	// Treatments is the registry of the treatments, such as classes of traffic, that other services
	// promise to flows. It is nil if no service promises any.
	Treatments *network.Treatments
	// Configured holds the channels of the configuration, by name.
	Configured map[string]Channel
}

// Owner is the service's part of the ledger of rules, such as a *network.Owner.
type Owner interface {
	kit.Ledger
	GroupID(number uint16) uint32
}

// core holds what all parts of the service share.
type core struct {
	Options
	Channels *kit.Reconciler[Channel]

	metrics     *metrics
	warnLimiter lograte.Limit // limits log lines that gateways can cause
	tasks       *tasks.Group
	ready       chan struct{} // closed when awaitNetwork has returned
}

// publish publishes an event on the bus.
func (c *core) publish(kind string, attrs any) {
	if c.Bus != nil {
		c.Bus.Publish(Name+"."+kind, attrs)
	}
}

// place returns where a gateway is attached, and its data address.
func (c *core) place(st *agents.State) (agents.Place, netip.Addr, error) {
	addr, ok := st.Addr(c.Media)
	if !ok {
		return agents.Place{}, addr, fmt.Errorf("has no data address of the family of %v", c.Media)
	}
	p, ok := st.Places[addr]
	if !ok {
		return p, addr, fmt.Errorf("has not been found in the network: nobody has been seen with %v", addr)
	}
	return p, addr, nil
}

// changeTimeout bounds one change of a viewer, and other work on a channel that somebody waits
// for.
const changeTimeout = 2 * time.Second

// egressRegistry holds the egress gateways; egressGateway is one of them.
type (
	egressRegistry = agents.Registry[*gatewayapi.Egress, gatewayapi.ViewerEvent, gatewayapi.Viewer]
	egressGateway  = agents.Agent[*gatewayapi.Egress]
)
