package datapath

import (
	"errors"
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// ErrUnsupported is returned by ebpf.Open, wrapped together with what is missing, if the kernel cannot
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
	// MAC is the address by which the network knows the interface.
	MAC openflow.MAC
}

// Config is the configuration of a datapath.
type Config struct {
	// VNI is the name of the virtual interface. It is created, or taken over unchanged if a killed
	// daemon has left it.
	VNI string
	// VNIMAC is the address that the device's own stack uses.
	VNIMAC openflow.MAC
	// MTU bounds the VNI's MTU. If MTU is 0, or the smallest MTU of the attached interfaces is less,
	// the VNI gets that one.
	MTU int
	// Interfaces are attached at first. Others may be attached and detached later.
	Interfaces []Interface
	// Log receives messages for operators; nil discards them.
	Log *slog.Logger
}

// Traffic counts frames of one interface since it was attached. Sent counts frames of the VNI that left
// by the interface. Heard counts IPv4 packets for the device itself that came in by the interface. It
// includes copies, but not ICMP packets, because probes are ICMP.
type Traffic struct {
	Sent, Heard uint64
	// Quiet is the time since the last packet was heard; 0 if none was.
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
