package access

import (
	"cmp"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/host"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

const (
	// DefaultMemory is the default of Options.Memory in bytes.
	DefaultMemory = 64 << 20
	// MinMemory is the minimum of Options.Memory, which has room for the largest chunk.
	MinMemory = 24 << 20
	// DefaultKeep is the default of Options.Keep.
	DefaultKeep = time.Minute
	// DefaultSilent is the default of Options.Silent.
	DefaultSilent = 15 * time.Second
	// MaxHosts is the maximum number of hosts of a Router: each is an application of the host,
	// which has room for 64.
	MaxHosts = 48
	// MaxOthers is the maximum number of entries in Options.Others.
	MaxOthers = 4096
)

// Host declares a host of the original release.
type Host struct {
	// GUID is the host's GUID.
	GUID frame.GUID
	// Key is the key of the name by which others know the host.
	Key ed25519.PrivateKey
	// MAC is the only Ethernet address from which the host is accepted. If it is zero, any address
	// is accepted that is declared for no other host; the first address that the host uses is then
	// the only one until the host is silent.
	MAC openflow.MAC
}

// Options configures a Router.
type Options struct {
	// Interfaces lists the names of the interfaces on which the hosts are. The router waits for
	// those that do not exist or are down.
	Interfaces []string
	// Open opens an interface; nil selects host.OpenInterface.
	Open func(name string) (*host.Interface, error)
	// Socket is the path of the host's socket for applications. If it is empty, it is
	// hostapi.DefaultSocket.
	Socket string
	// Hosts declares the hosts, at most MaxHosts.
	Hosts []Host
	// Others contains the names of hosts of the original release that other routers serve, by their
	// GUIDs; at most MaxOthers.
	Others map[frame.GUID]frame.GUID
	// Memory limits the bytes of the chunks that each host sends. Zero selects DefaultMemory.
	Memory int
	// Keep is how long a chunk is kept that its destination does not take over. Zero selects
	// DefaultKeep.
	Keep time.Duration
	// Silent is the time after which a silent host counts as gone. Zero selects DefaultSilent.
	Silent time.Duration
	// Log receives messages about hosts that come and go, and about failures; nil discards them.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Open == nil {
		o.Open = host.OpenInterface
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Socket = cmp.Or(o.Socket, hostapi.DefaultSocket())
	o.Memory = cmp.Or(o.Memory, DefaultMemory)
	o.Keep = cmp.Or(o.Keep, DefaultKeep)
	o.Silent = cmp.Or(o.Silent, DefaultSilent)
	return o
}

// ErrOptions means that a Router cannot work with the options; errors wrap it.
var ErrOptions = errors.New("invalid options for an access router")

// check checks the options.
func (o *Options) check() error {
	switch {
	case len(o.Hosts) == 0 || len(o.Hosts) > MaxHosts:
		return fmt.Errorf("%d hosts, want 1 to %d: %w", len(o.Hosts), MaxHosts, ErrOptions)
	case len(o.Others) > MaxOthers:
		return fmt.Errorf("%d other hosts, want at most %d: %w", len(o.Others), MaxOthers, ErrOptions)
	case o.Memory < MinMemory:
		return fmt.Errorf("memory of %d bytes for a host, want at least %d: %w", o.Memory, MinMemory, ErrOptions)
	case o.Keep <= 0 || o.Silent <= 0:
		return fmt.Errorf("chunks are kept for %v, silent hosts for %v, want more than 0 for both: %w", o.Keep, o.Silent, ErrOptions)
	}
	return o.checkHosts()
}

// checkHosts returns an error if two hosts cannot be distinguished by their names, GUIDs or Ethernet
// addresses.
func (o *Options) checkHosts() error {
	names, shorts, macs := map[frame.GUID]frame.GUID{}, map[uint32]frame.GUID{}, map[openflow.MAC]frame.GUID{}
	for guid, name := range o.Others {
		if other, ok := names[name]; ok {
			return fmt.Errorf("hosts %v and %v have the same name: %w", other, guid, ErrOptions)
		}
		names[name] = guid
	}
	for _, h := range o.Hosts {
		name := record.NameOfOwner(h.Key)
		switch _, ok := o.Others[h.GUID]; {
		case h.GUID.IsZero():
			return fmt.Errorf("the GUID zero, which is not that of a host: %w", ErrOptions)
		case ok:
			return fmt.Errorf("host %v is served here and elsewhere: %w", h.GUID, ErrOptions)
		case h.MAC.IsMulticast():
			return fmt.Errorf("host %v with the multicast address %v: %w", h.GUID, h.MAC, ErrOptions)
		}
		if other, ok := shorts[h.GUID.Short()]; ok {
			return fmt.Errorf("hosts %v and %v, whose probes cannot be told apart since the last 8 digits are the same: %w", other, h.GUID, ErrOptions)
		}
		if other, ok := names[name]; ok {
			return fmt.Errorf("hosts %v and %v have the same name: %w", other, h.GUID, ErrOptions)
		}
		if other, ok := macs[h.MAC]; ok && !h.MAC.IsZero() {
			return fmt.Errorf("hosts %v and %v have the same Ethernet address: %w", other, h.GUID, ErrOptions)
		}
		names[name], shorts[h.GUID.Short()], macs[h.MAC] = h.GUID, h.GUID, h.GUID
	}
	for _, guid := range names {
		if other, ok := names[guid]; ok && other != guid {
			return fmt.Errorf("the GUID %v is the name of host %v: %w", guid, other, ErrOptions)
		}
	}
	return nil
}
