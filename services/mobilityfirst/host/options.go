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
	// MaxChunk is how many bytes a chunk has at most.
	MaxChunk = hostapi.MaxChunk
	// DefaultMemory is Options.Memory where that says nothing.
	DefaultMemory = 512 << 20
	// DefaultKeep is Options.Keep where that says nothing.
	DefaultKeep = time.Minute
	// DefaultKeptFor is Options.KeptFor where that says nothing.
	DefaultKeptFor = 24 * time.Hour
)

// Options are what a Host works with.
type Options struct {
	// Interfaces are the names of those that it uses, from one on. It waits for those that are not
	// there, or not up.
	Interfaces []string
	// Open opens one of them; nil for OpenInterface.
	Open func(name string) (*Interface, error)
	// Far is how it reaches names that are on none of them; nil for not at all.
	Far *Far
	// Near are names that are found on its links alone, and not published: of each there are many.
	Near []frame.GUID
	// Memory is how many bytes it has at most of what has come and is not taken, an eighth of it from
	// one Ethernet address; and four times as many of what is to be sent. Zero for DefaultMemory; at
	// least 16*MaxChunk.
	Memory int
	// Keep is how long it has a chunk that is not taken. Zero for DefaultKeep.
	Keep time.Duration
	// Storage are the names of the storage nodes to which chunks go that may wait ([frame.DelayTolerant]), and
	// are to be kept there while their destinations are away; none: such chunks are as others.
	Storage []frame.GUID
	// KeptFor is how long such chunks hold, at most custody.MaxKept. Zero for DefaultKeptFor.
	KeptFor time.Duration
	// Log is where it says what happens to its links; nil for nowhere.
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

// Interface is one that frames go over.
type Interface struct {
	MAC openflow.MAC
	// MTU is how many bytes may stand behind an Ethernet header. By UDP it is how many a datagram carries at most.
	MTU int
	// Index is the kernel's number of it; zero if the kernel does not know it.
	Index int
	Socket
}

// Socket sends and receives frames; *rawlink.Socket says what its methods do.
type Socket interface {
	AppendHeader(b []byte, to openflow.MAC, label uint16) []byte
	Send(frames [][]byte) error
	Receive(ctx context.Context) ([]rawlink.Frame, error)
	Close() error
}

// OpenInterface opens one of this machine's interfaces, which has to be up. It needs CAP_NET_RAW.
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
