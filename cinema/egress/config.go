package egress

import (
	"crypto/tls"
	"log/slog"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/internal/clientaddr"
	"github.com/sluice-net/sluice/service/control"
)

// Config is what a gateway works with.
type Config struct {
	// Name is the gateway's, as its certificate has it.
	Name    string
	Version string
	Log     *slog.Logger

	// Control is where its controller reaches it, with TLS as the control server has it.
	Control    string
	ControlTLS *tls.Config

	// Data is the address at which channels come in, each viewer's at one of Ports.
	Data  netip.Addr
	Ports control.PortRange
	// Shared has all of them come in at one port, each channel once, and the gateway copy them
	// to its viewers.
	Shared bool

	// Public is where viewers reach it by HTTP, TLS its certificate (nil: plain HTTP), URL
	// what it is called by them.
	Public    string
	PublicTLS *tls.Config
	URL       string

	// Media are the addresses, with a port, at which viewers reach it by UDP.
	Media []netip.AddrPort

	// MaxViewers bounds the viewers, MaxPerAddress those of one client's address.
	MaxViewers    int
	MaxPerAddress int
	// Proxies are reverse proxies that say whose the requests are that come by them.
	Proxies clientaddr.Proxies
	// Burst has viewers who join or change get what has come since the last key frame.
	Burst bool
	// MakeBeforeBreak has viewers who change see the old channel until the new one's key frame
	// is there. Without it the old one ends first.
	MakeBeforeBreak bool

	Controller Controller
	Times      Times
}

// Times is how long things may take.
type Times struct {
	// Ask bounds a question to the controller, KeyFrame the wait for a channel's key frame.
	Ask, KeyFrame time.Duration
	// Connect bounds the time from a viewer's offer until it is connected.
	Connect time.Duration
	// Silence is after how long without a sign of life a viewer is gone, at most half of it
	// later.
	Silence time.Duration
	// Poll is the time between two looks at the lineup.
	Poll time.Duration
}

// DefaultTimes are those of a gateway in a network.
func DefaultTimes() Times {
	return Times{Ask: 2 * time.Second, KeyFrame: 5 * time.Second, Connect: 10 * time.Second, Silence: 6 * time.Second, Poll: time.Second}
}
