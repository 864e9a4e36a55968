package ingress

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/sluice-net/sluice/internal/clientaddr"
)

// DefaultMaxChannels is how many channels a gateway has at most unless configured.
const DefaultMaxChannels = 64

// Config is all that a gateway is told.
type Config struct {
	Log     *slog.Logger
	Version string
	// Listen is the address of the control server. TLS asks for the controller's
	// certificate; nil is for the loopback interface.
	Listen string
	TLS    *tls.Config
	// Data is the address, IPv4 and of one of the machine's interfaces, from which
	// channels' datagrams come.
	Data netip.Addr
	// Public is where producers publish by WHIP: HTTP over TCP, and what they send over UDP
	// at the port of the same number. A nil PublicTLS is plain HTTP.
	Public    netip.AddrPort
	PublicTLS *tls.Config
	// PublicURL is where producers find that; empty: made from Public.
	PublicURL string
	// Proxies are reverse proxies that say whose the requests are that come by them.
	Proxies clientaddr.Proxies
	// MaxChannels bounds the channels, and with them the child processes and producers.
	MaxChannels int
	// FFmpeg is the program, by its path or by a name that is looked for in PATH; ffprobe is
	// looked for beside it.
	FFmpeg string
	// Certificates are files whose expiry is a metric, by what they are for.
	Certificates map[string]string

	// open opens the output of a channel with a media address and a source port; nil: that
	// of the kernel.
	open func(to netip.Addr, port uint16) (output, error)
}

// Validate says what is wrong with the configuration.
func (c *Config) Validate() error {
	if c.Log == nil {
		return errors.New("no log")
	}
	if !c.Data.Is4() || c.Data.IsUnspecified() || c.Data.IsMulticast() {
		return fmt.Errorf("data address %v: want one IPv4 address of this machine", c.Data)
	}
	if !c.Public.IsValid() {
		return errors.New("no public address: want one like 192.0.2.1:8460")
	}
	if c.MaxChannels < 1 || c.MaxChannels > 1000 {
		return fmt.Errorf("%d channels at most: want a number from 1 to 1000", c.MaxChannels)
	}
	return nil
}
