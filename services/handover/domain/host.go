package domain

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// Errors of a Host, for errors.Is. Any other error is treated as temporary.
var (
	// ErrTaken means that an address of the visitor belongs to another host here.
	ErrTaken = errors.New("an address of the device belongs to somebody else")
	// ErrNoDevice means that there is no such device.
	ErrNoDevice = errors.New("no such device")
	// ErrNoEvidence means that the evidence does not show that the device is at the place.
	ErrNoEvidence = errors.New("the request does not prove that the device is there")
)

// Known is what a domain knows about a registered device.
type Known struct {
	Visitor
	// Here reports whether the device is attached at an edge port of this domain now. Place is that
	// port.
	Here  bool
	Place Place
	// Overlap is how long, after the device has attached somewhere here, packets still go to the
	// previous place. That place is released only after that.
	Overlap time.Duration
}

// Place is a place where a device is attached or wants to attach.
type Place struct {
	// At is the edge port, and MAC the source of the frames that come in there.
	At  network.PortRef `json:"at,omitzero"`
	MAC openflow.MAC    `json:"mac,omitzero"`
}

// Visit is a device that this domain is to receive.
type Visit struct {
	Visitor
	// ID is the device's name in this domain.
	ID string
	// Via is the neighbour over whose peering the device's packets come and go. It is empty for
	// this domain's own border ports: the device comes home.
	Via     string
	Heading Heading
}

// Host gives the protocol access to the devices and rules of its own domain. The handover service
// implements it. All methods may be called concurrently and return when their context ends.
// Prepare, Redirect, Cancel and Forget are never called concurrently for one device. They are
// idempotent, since messages may arrive twice.
type Host interface {
	// Device returns the device with the local name. It returns no device whose address is not
	// known yet.
	Device(id string) (Known, bool)
	// DeviceByMAC returns the device that has the hardware address.
	DeviceByMAC(mac openflow.MAC) (Known, bool)
	// Check refuses, with ErrTaken, a visitor one of whose addresses belongs to another device, to
	// a pool, or to the network. It changes nothing.
	Check(v Visitor) error

	// Prepare registers the visitor and leads its packets between v.Via and the place where
	// v.Heading leads, if that is known. A new visitor's packets come from v.Via alone. If the
	// packets pass through here, or the device is our own, they also still go to the present
	// place. Prepare does not say that the device is here.
	Prepare(ctx context.Context, v Visit) error
	// Redirect sends the device's packets to the peering with the neighbour, and accepts its
	// packets from there. Unless alone is set, packets also go to the present place, if there is
	// one. With alone, the device is from now on attached at the peering.
	Redirect(ctx context.Context, id, peer string, alone bool) error
	// Cancel undoes Prepare, or Redirect without alone: packets go again where they went before. A
	// visitor that was only prepared is forgotten.
	Cancel(ctx context.Context, id string) error
	// Forget removes the device's rules and lease here. A visitor is removed altogether.
	Forget(ctx context.Context, id string) error

	// Verify checks the evidence with the key of the device, which is our own. Evidence is
	// accepted only once.
	Verify(ctx context.Context, id string, e Evidence) error
	// Resume tells the host that the protocol no longer waits for neighbours about the hardware
	// address, so that the host can handle a DHCP message that it left unanswered. It must not block.
	Resume(mac openflow.MAC)
}

// Admission is the decision how a DHCP message is handled.
type Admission uint8

// The admissions.
const (
	// Serve: the message is handled like any other.
	Serve Admission = iota
	// Wait: the message is left unanswered. A call of Host.Resume follows in bounded time, unless
	// neighbours are being asked about too many addresses; then the client has to ask again.
	Wait
)
