package ingress

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/sluice-net/sluice/internal/clientaddr"
)

// DefaultMaxChannels is the default of Config.MaxChannels in configuration files.
const DefaultMaxChannels = 64

// Config configures a gateway.
type Config struct {
	Log     *slog.Logger
	Version string
	// Listen is the address of the control server. TLS requires the controller's certificate;
	// it is nil for the loopback interface.
	Listen string
	TLS    *tls.Config
	// Data is the source address of channels' datagrams: an IPv4 address of one of the
	// machine's interfaces.
	Data netip.Addr
	// Public is the address at which producers publish by WHIP: HTTP over TCP, and media over
	// UDP at the same port number. A nil PublicTLS means plain HTTP.
	Public    netip.AddrPort
	PublicTLS *tls.Config
	// ICE holds the addresses at which producers reach the gateway's UDP port, with the same number as
	// Public, if it is behind NAT. Empty means the addresses at which the gateway listens.
	ICE []netip.Addr
	// PublicURL is the URL that producers use; if it is empty, it is made from Public.
	PublicURL string
	// Proxies are trusted reverse proxies, which name the clients of their requests.
	Proxies clientaddr.Proxies
	// MaxChannels bounds the channels, and so the child processes and producers.
	MaxChannels int
	// FFmpeg is the path of ffmpeg, or a name to look up in PATH. The gateway expects ffprobe
	// beside it.
	FFmpeg string
	// Certificates holds the files of the certificates whose expiry is a metric, by purpose.
	Certificates map[string]string

	// openOutput opens the output of a channel that sends from the given port to the given media
	// address. Nil means that the output is a UDP socket.
	openOutput func(to netip.Addr, port uint16) (output, error)
}

// Validate returns an error if the configuration is invalid.
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
