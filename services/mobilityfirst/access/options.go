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
	// DefaultMemory is the value of Options.Memory, in bytes, where it is zero.
	DefaultMemory = 64 << 20
	// LeastMemory is the smallest value of Options.Memory: it has room for the largest chunk.
	LeastMemory = 24 << 20
	// DefaultKeep is Options.Keep where that says nothing.
	DefaultKeep = time.Minute
	// DefaultSilent is Options.Silent where that says nothing.
	DefaultSilent = 15 * time.Second
	// MaxHosts is how many hosts a Router serves at most: each is an application of the host of ours, which has 64.
	MaxHosts = 48
	// MaxOthers is how many of Options.Others there are at most.
	MaxOthers = 4096
)

// Host is a host of the original release that is served.
type Host struct {
	// GUID is what the host calls itself.
	GUID frame.GUID
	// Key is that of the name by which others know it.
	Key ed25519.PrivateKey
	// MAC is the only Ethernet address from which it is heard. Zero for any that is no other's: then the first holds while it is heard.
	MAC openflow.MAC
}

// Options are what a Router works with.
type Options struct {
	// Interfaces are the names of those on which the hosts are. It waits for those that are not there, or not up.
	Interfaces []string
	// Open opens one of them; nil for host.OpenInterface.
	Open func(name string) (*host.Interface, error)
	// Socket is where the host of ours takes applications. Empty for hostapi.DefaultSocket.
	Socket string
	// Hosts are those that are served, at most MaxHosts.
	Hosts []Host
	// Others are the names of hosts of the original release that other routers serve, by their GUIDs; at most MaxOthers.
	Others map[frame.GUID]frame.GUID
	// Memory is how many bytes each host may have here of chunks that it sends. Zero for DefaultMemory.
	Memory int
	// Keep is how long a chunk of theirs is kept that its destination does not take. Zero for DefaultKeep.
	Keep time.Duration
	// Silent is for how long a host is there that is not heard. Zero for DefaultSilent.
	Silent time.Duration
	// Log is where it says which hosts come and go, and what fails; nil for nowhere.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Open == nil {
		o.Open = host.OpenInterface
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Socket = cmp.Or(o.Socket, hostapi.DefaultSocket)
	o.Memory = cmp.Or(o.Memory, DefaultMemory)
	o.Keep = cmp.Or(o.Keep, DefaultKeep)
	o.Silent = cmp.Or(o.Silent, DefaultSilent)
	return o
}

// ErrOptions is for options with which a Router cannot work; errors wrap it.
var ErrOptions = errors.New("an access router cannot work so")

// check says what is wrong with options.
func (o *Options) check() error {
	switch {
	case len(o.Hosts) == 0 || len(o.Hosts) > MaxHosts:
		return fmt.Errorf("%d hosts, want 1 to %d: %w", len(o.Hosts), MaxHosts, ErrOptions)
	case len(o.Others) > MaxOthers:
		return fmt.Errorf("%d other hosts, want at most %d: %w", len(o.Others), MaxOthers, ErrOptions)
	case o.Memory < LeastMemory:
		return fmt.Errorf("memory of %d bytes for a host, want at least %d: %w", o.Memory, LeastMemory, ErrOptions)
	case o.Keep <= 0 || o.Silent <= 0:
		return fmt.Errorf("chunks are kept for %v, hosts for %v, want more than nothing: %w", o.Keep, o.Silent, ErrOptions)
	}
	return o.checkHosts()
}

// checkHosts says whether hosts cannot be told apart.
func (o *Options) checkHosts() error {
	names, shorts, macs := map[frame.GUID]frame.GUID{}, map[uint32]frame.GUID{}, map[openflow.MAC]frame.GUID{}
	for guid, name := range o.Others {
		if other, is := names[name]; is {
			return fmt.Errorf("hosts %v and %v with one name: %w", other, guid, ErrOptions)
		}
		names[name] = guid
	}
	for _, h := range o.Hosts {
		name := record.NameOfOwner(h.Key)
		switch _, is := o.Others[h.GUID]; {
		case h.GUID.IsZero():
			return fmt.Errorf("a host with the GUID zero, which names nobody: %w", ErrOptions)
		case is:
			return fmt.Errorf("host %v is served here and elsewhere: %w", h.GUID, ErrOptions)
		case h.MAC.IsMulticast():
			return fmt.Errorf("host %v with the Ethernet address %v of a group: %w", h.GUID, h.MAC, ErrOptions)
		}
		if other, is := shorts[h.GUID.Short()]; is {
			return fmt.Errorf("hosts %v and %v, whose probes cannot be told apart since the last 8 digits are the same: %w", other, h.GUID, ErrOptions)
		}
		if other, is := names[name]; is {
			return fmt.Errorf("hosts %v and %v with one name: %w", other, h.GUID, ErrOptions)
		}
		if other, is := macs[h.MAC]; is && !h.MAC.IsZero() {
			return fmt.Errorf("hosts %v and %v with one Ethernet address: %w", other, h.GUID, ErrOptions)
		}
		names[name], shorts[h.GUID.Short()], macs[h.MAC] = h.GUID, h.GUID, h.GUID
	}
	for _, guid := range names {
		if other, is := names[guid]; is && other != guid {
			return fmt.Errorf("the GUID %v is the name of host %v: %w", guid, other, ErrOptions)
		}
	}
	return nil
}
