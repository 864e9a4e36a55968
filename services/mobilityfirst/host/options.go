package host

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/custody"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
	"github.com/sluice-net/sluice/services/mobilityfirst/rawlink"
)

const (
	// MaxChunk is the maximum size of a chunk in bytes.
	MaxChunk = hostapi.MaxChunk
	// DefaultMemory is the default of Options.Memory.
	DefaultMemory = 512 << 20
	// DefaultKeep is the default of Options.Keep.
	DefaultKeep = time.Minute
	// DefaultKeptFor is the default of Options.KeptFor.
	DefaultKeptFor = 24 * time.Hour
)

// Options configures a Host.
type Options struct {
	// Interfaces lists the names of the interfaces to use, at least one. The host waits for those
	// that do not exist or are down.
	Interfaces []string
	// Open opens an interface; nil selects OpenInterface.
	Open func(name string) (*Interface, error)
	// Far reaches names that are on none of the interfaces; nil means that they are not reached.
	Far *Far
	// Near lists the names that are only searched on the links, and not published, because each has
	// many hosts.
	Near []frame.GUID
	// Memory limits the bytes of received chunks that have not been taken over, of which one
	// Ethernet address may use an eighth; four times as many bytes may wait to be sent. Zero
	// selects DefaultMemory; the minimum is 16*MaxChunk.
	Memory int
	// Keep is how long the host keeps a chunk that is not taken over. Zero selects DefaultKeep.
	Keep time.Duration
	// Storage lists the names of the storage nodes for chunks that may wait
	// ([frame.DelayTolerant]): these go to a storage node, which keeps them while their destination
	// is away. If it is empty, such chunks are sent like others.
	Storage []frame.GUID
	// KeptFor is how long chunks for storage nodes are valid, at most custody.MaxKept. Zero selects
	// DefaultKeptFor.
	KeptFor time.Duration
	// Log receives messages about the links; nil discards them.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Open == nil {
		o.Open = OpenInterface
	}
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	o.Memory = max(o.Memory, 16*MaxChunk)
	if o.Keep == 0 {
		o.Keep = DefaultKeep
	}
	if o.KeptFor == 0 {
		o.KeptFor = DefaultKeptFor
	}
	o.KeptFor = min(o.KeptFor, custody.MaxKept)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Interface is an open network interface.
type Interface struct {
	MAC openflow.MAC
	// MTU is the maximum number of bytes behind an Ethernet header or, with UDP, in a datagram.
	MTU int
	// Index is the kernel's index of the interface, or zero if the kernel does not know it.
	Index int
	Socket
}

// Socket sends and receives frames; *rawlink.Socket documents its methods.
type Socket interface {
	AppendHeader(b []byte, to openflow.MAC, label uint16) []byte
	Send(frames [][]byte) error
	Receive(ctx context.Context) ([]rawlink.Frame, error)
	Close() error
}

// OpenInterface opens an interface of this machine, which must be up. It requires CAP_NET_RAW.
func OpenInterface(name string) (*Interface, error) {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	if ifi.Flags&net.FlagUp == 0 {
		return nil, fmt.Errorf("interface %s is down", name)
	}
	s, err := rawlink.Open(ifi)
	if err != nil {
		return nil, err
	}
	return &Interface{MAC: s.MAC, MTU: s.MTU, Index: ifi.Index, Socket: s}, nil
}
