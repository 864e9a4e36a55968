package datapath

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// ErrUnsupported is what Open returns (wrapped, with the name of what is missing)
// where the kernel cannot carry a datapath.
var ErrUnsupported = errors.New("not supported on this device")

// ErrUnknownInterface is returned for an interface that was not attached.
var ErrUnknownInterface = errors.New("interface is not attached to the datapath")

// MaxInterfaces is how many interfaces one datapath can have attached.
const MaxInterfaces = 16

// Interface is a network interface that carries the VNI's frames.
type Interface struct {
	// Name is the interface's name in the network namespace of the caller.
	Name string
	// MAC is the address its network knows it by.
	MAC openflow.MAC
}

// Config says what a datapath is made of.
type Config struct {
	// VNI is the name of the virtual interface. It is created, or taken over
	// as it is when a daemon that was killed has left it.
	VNI string
	// VNIMAC is the address the device's own stack uses.
	VNIMAC openflow.MAC
	// MTU of the VNI at most: it is the smallest of the attached interfaces' if that
	// is less, or this is 0.
	MTU int
	// Interfaces are attached at the start. More may come and go later.
	Interfaces []Interface
	// Log receives what an operator may want to know; nil means silence.
	Log *slog.Logger
}

// Datapath carries frames between the VNI and the attached interfaces. Nothing
// passes until the first Use. The methods may be called from several
// goroutines; changes happen one after the other.
//
// A datapath touches no address, no route, and no link state of the interfaces:
// they are the daemon's business. The VNI is up when Open returns. A daemon that
// is killed leaves the datapath working as it was; the next Open takes the VNI
// over, with what addresses it has, and removes the rest of what was left.
type Datapath interface {
	// Attach adds an interface, or takes it anew if its MAC address changed or
	// if it was unplugged and came back. It carries nothing until Use names it.
	Attach(ctx context.Context, i Interface) error

	// Detach takes an interface away; one that has vanished may be detached
	// too. If it was in use, it is no longer.
	Detach(ctx context.Context, name string) error

	// FitMTU gives the VNI the MTU that fits the attached interfaces, after that of
	// one has changed. Attach and Detach do so by themselves.
	FitMTU(ctx context.Context) error

	// Use makes one atomic change: frames of the VNI leave by send, and frames
	// that come in by one of receive reach the VNI. An empty send holds the
	// VNI's frames back: they are dropped. Frames of an attached interface that
	// is not in receive are dropped.
	//
	// The network may send everything to several interfaces: each packet is
	// delivered once, from whichever interface in receive brought it first.
	//
	// A switch that neither loses nor doubles a packet, while the network sends
	// to both places, is Use(new, [old new]) followed by Use(new, [new]) when
	// the old place has nothing more under way.
	//
	// When Use returns nil the change is in force. When it returns an error
	// the datapath is as it was before.
	Use(ctx context.Context, send string, receive []string) error

	// SendAgain sends by the interface in use, to the gateway's address there or, if
	// that is zero, where it went before, the last segment of each TCP connection, with
	// payload and without, of those that sent one not longer than `within` ago. It is
	// for what an interface may have lost: a few hundred segments at most.
	SendAgain(within time.Duration, gateway openflow.MAC) (sent int, err error)

	// Stats reads the counters.
	Stats() (Stats, error)

	// Traffic reads what tells whether a way is alive, of one interface. It is
	// cheap: it is called 50 times a second.
	Traffic(name string) (Traffic, error)

	// Close removes everything the datapath made, the VNI included.
	Close() error
}

// Traffic counts frames of one interface since it was attached: those of the VNI
// that left by it, and the IPv4 packets that came by it for the device itself, copies
// included and ICMP left out, which probes are made of.
type Traffic struct {
	Sent, Heard uint64
	// Quiet is for how long none was heard; 0, if none ever was.
	Quiet time.Duration
}

// Stats are counters of a datapath since it was opened.
type Stats struct {
	// Send and Receive are what the last Use named.
	Send    string
	Receive []string
	// Interfaces has an entry for each attached interface, by name.
	Interfaces map[string]InterfaceStats
	// Unsent counts frames of the VNI that found no interface to leave by.
	Unsent uint64
}

// InterfaceStats are the counters of one interface. A GSO frame counts as one.
type InterfaceStats struct {
	SentPackets, SentBytes         uint64
	ReceivedPackets, ReceivedBytes uint64
	// Inactive counts frames dropped because the interface was not in use.
	Inactive uint64
	// Foreign counts frames dropped because they were not for the device or
	// were its own come back.
	Foreign uint64
	// Doubled counts copies dropped because another interface brought them
	// first.
	Doubled uint64
}
