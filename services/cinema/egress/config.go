package egress

import (
	"crypto/tls"
	"log/slog"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/internal/clientaddr"
	"github.com/sluice-net/sluice/kit/control"
)

// Config configures a gateway.
type Config struct {
	// Name is the gateway's name, as in its certificate.
	Name    string
	Version string
	Log     *slog.Logger

	// Control is the listen address for the controller, and ControlTLS its TLS configuration.
	Control    string
	ControlTLS *tls.Config

	// Data is the address that receives channels, for each viewer at one of Ports.
	Data  netip.Addr
	Ports control.PortRange
	// Shared makes all channels arrive at one port, each of them once; the gateway then copies
	// them to its viewers.
	Shared bool

	// Public is the listen address for viewers' HTTP, PublicTLS its TLS configuration (nil
	// means plain HTTP), and URL the address that viewers use.
	Public    string
	PublicTLS *tls.Config
	URL       string

	// Media holds the addresses, with ports, that viewers reach by UDP.
	Media []netip.AddrPort

	// MaxViewers bounds all viewers, and MaxPerAddress those of one client's address.
	MaxViewers    int
	MaxPerAddress int
	// Proxies are trusted reverse proxies, which name the clients of their requests.
	Proxies clientaddr.Proxies
	// Burst makes viewers who join or change get the packets since the last key frame.
	Burst bool
	// MakeBeforeBreak lets viewers who change see the old channel until the new one's key frame
	// arrives. Without it, the old channel ends first.
	MakeBeforeBreak bool

	Controller Controller
	Times      Times
}

// Times holds the timeouts of a gateway.
type Times struct {
	// Ask bounds a request to the controller, and KeyFrame the wait for a channel's key frame.
	Ask, KeyFrame time.Duration
	// Connect bounds the time from a viewer's offer until the viewer is connected.
	Connect time.Duration
	// Silence is how long a viewer may give no sign of life. Afterwards the viewer is removed within
	// half of this time.
	Silence time.Duration
	// Poll is the time between two requests for the lineup.
	Poll time.Duration
}

// DefaultTimes returns the timeouts for normal use.
func DefaultTimes() Times {
	return Times{Ask: 2 * time.Second, KeyFrame: 5 * time.Second, Connect: 10 * time.Second, Silence: 6 * time.Second, Poll: time.Second}
}
