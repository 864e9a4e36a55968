package datapath

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// ErrUnsupported is returned by Open, wrapped together with what is missing, if the kernel cannot
// run a datapath.
var ErrUnsupported = errors.New("not supported on this device")

// ErrUnknownInterface is returned for an interface that was not attached.
var ErrUnknownInterface = errors.New("interface is not attached to the datapath")

// MaxInterfaces bounds the interfaces that are attached to one datapath.
const MaxInterfaces = 16

// Interface is a network interface that carries the VNI's frames.
type Interface struct {
	// Name is the interface's name in the network namespace of the caller.
	Name string
	// MAC is the address by which its network knows it.
	MAC openflow.MAC
}

// Config is the configuration of a datapath.
type Config struct {
	// VNI is the name of the virtual interface. It is created, or taken over unchanged if a killed
	// daemon has left it.
	VNI string
	// VNIMAC is the address that the device's own stack uses.
	VNIMAC openflow.MAC
	// MTU bounds the VNI's MTU, which is the smallest of the attached interfaces' if that is less
	// or if MTU is 0.
	MTU int
	// Interfaces are attached by Open. Others may be attached and detached later.
	Interfaces []Interface
	// Log receives messages for operators; nil discards them.
	Log *slog.Logger
}

// Datapath carries frames between the VNI and the attached interfaces. No frame passes before the
// first Use. The methods may be called concurrently; changes are made one after the other.
//
// A datapath changes no address, route or link state of the interfaces: these are the daemon's.
// The VNI is up when Open returns. The datapath of a killed daemon continues to work; the next
// Open takes over the VNI with its addresses, and removes the rest of what was left.
type Datapath interface {
	// Attach adds an interface, or attaches it again if its MAC address has changed or if it was
	// unplugged and came back. It carries nothing until Use names it.
	Attach(ctx context.Context, i Interface) error

	// Detach removes an interface, even one that has vanished. If it was in use, it no longer is.
	Detach(ctx context.Context, name string) error

	// FitMTU sets the VNI's MTU to fit the attached interfaces, after that of one has changed.
	// Attach and Detach do so by themselves.
	FitMTU(ctx context.Context) error

	// Use makes one atomic change: frames of the VNI leave by send, and frames that come in by one
	// of receive reach the VNI. If send is empty, frames of the VNI are dropped. Frames of an
	// attached interface that is not in receive are dropped.
	//
	// The network may send every packet to several interfaces. Each packet is delivered once, from
	// the interface in receive that brought it first.
	//
	// A switch that neither loses nor duplicates a packet, while the network sends to both places,
	// is Use(new, [old new]) followed by Use(new, [new]) when the old place has no packets in
	// flight any more.
	//
	// When Use returns nil the change is in force. After an error the datapath is unchanged.
	Use(ctx context.Context, send string, receive []string) error

	// SendAgain sends again the last segment of each TCP connection that has sent one within the
	// given time, both the last with payload and the last without. The segments leave by the
	// interface in use, to the gateway's address there or, if that is zero, to their earlier
	// destination. They replace what a failed interface may have lost: a few hundred segments at
	// most.
	SendAgain(within time.Duration, gateway openflow.MAC) (sent int, err error)

	// Stats returns the counters.
	Stats() (Stats, error)

	// Traffic returns the counters of one interface that show whether its path works. It is cheap:
	// it is called 50 times a second.
	Traffic(name string) (Traffic, error)

	// Close removes everything that the datapath has created, including the VNI.
	Close() error
}

// Traffic counts frames of one interface since it was attached: Sent counts frames of the VNI that
// left by it. Heard counts IPv4 packets for the device itself that came by it, including copies
// but not ICMP, of which probes consist.
type Traffic struct {
	Sent, Heard uint64
	// Quiet is the time since the last one was heard; 0 if there was none.
	Quiet time.Duration
}

// Stats holds the counters of a datapath since it was opened.
type Stats struct {
	// Send and Receive are the interfaces that the last Use named.
	Send    string
	Receive []string
	// Interfaces has an entry for each attached interface, by name.
	Interfaces map[string]InterfaceStats
	// Unsent counts frames of the VNI for which there was no interface to send by.
	Unsent uint64
}

// InterfaceStats holds the counters of one interface. A GSO frame counts as one.
type InterfaceStats struct {
	SentPackets, SentBytes         uint64
	ReceivedPackets, ReceivedBytes uint64
	// Inactive counts frames dropped because the interface was not in use.
	Inactive uint64
	// Foreign counts frames dropped because they were not for the device, or were its own frames
	// sent back.
	Foreign uint64
	// Doubled counts copies dropped because another interface had brought the packet first.
	Doubled uint64
}
