package domain

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// What a Host may answer, for errors.Is. Anything else is taken for a fault that
// may pass.
var (
	// ErrTaken says that an address of the visitor belongs to somebody else here.
	ErrTaken = errors.New("an address of the device belongs to somebody else")
	// ErrNoDevice says that there is no such device.
	ErrNoDevice = errors.New("no such device")
	// ErrNoEvidence says that the evidence does not show that the device is there.
	ErrNoEvidence = errors.New("the request does not prove that the device is there")
)

// Known is what a domain knows about a device that it has registered.
type Known struct {
	Visitor
	// Here says that it is attached at an edge port of this domain now, at Place.
	Here  bool
	Place Place
	// Overlap is for how long, after it has attached somewhere here, packets go
	// on to where they went before. That place is told to let go after that.
	Overlap time.Duration
}

// Place is where a device is attached, or asks to be.
type Place struct {
	// At is the edge port, MAC the source of the frames that come in there.
	At  network.PortRef `json:"at,omitzero"`
	MAC openflow.MAC    `json:"mac,omitzero"`
}

// Visit is a device that is to be received.
type Visit struct {
	Visitor
	// ID is the device's name in this domain.
	ID string
	// Via is the neighbour over whose peering its packets come and go; empty
	// means this domain's own border ports: the device comes home.
	Via     string
	Heading Heading
}

// Host is the domain that the protocol works for: its devices, its rules. The
// handover plugin is one. All calls are safe for concurrent use and end with
// their context. Prepare, Redirect, Cancel and Forget are never made at the same
// time for one device, and are idempotent, since messages may come twice.
type Host interface {
	// Device returns the device with the local name. A device whose address is not
	// yet known has none in it.
	Device(id string) (Known, bool)
	// DeviceByMAC returns the device that has the hardware address.
	DeviceByMAC(mac openflow.MAC) (Known, bool)
	// Check refuses, with ErrTaken, a visitor one of whose addresses belongs
	// to another device than this visitor itself, to a pool, or to the network. It
	// changes nothing.
	Check(v Visitor) error

	// Prepare takes the visitor in and makes its packets flow between v.Via and
	// the place where v.Heading leads, if that is known: a new visitor's from
	// v.Via alone, one whose packets pass through here or that is our own also
	// still to where they go now. It does not say that the device is here.
	Prepare(ctx context.Context, v Visit) error
	// Redirect sends the device's packets to the peering with the neighbour:
	// alone, or as well as to where they go now, if they go anywhere; and takes its
	// packets from there. With alone, the device is from now on attached at the
	// peering.
	Redirect(ctx context.Context, id, peer string, alone bool) error
	// Cancel takes back Prepare, or Redirect without alone: packets go again
	// where they went before. A visitor that was only prepared is forgotten.
	Cancel(ctx context.Context, id string) error
	// Forget removes the device's rules and lease here, and a visitor altogether.
	Forget(ctx context.Context, id string) error

	// Verify checks the evidence with the key of the device, which is our own.
	// Evidence is good once.
	Verify(ctx context.Context, id string, e Evidence) error
	// Resume says that the service no longer waits for neighbours about the
	// hardware address: a DHCP message that was left unanswered can be handled.
	// It must not block.
	Resume(mac openflow.MAC)
}

// Admission is what is to be done about a DHCP message.
type Admission uint8

// The admissions.
const (
	// Serve lets it be handled like any other.
	Serve Admission = iota
	// Wait leaves it unanswered; Host.Resume follows in bounded time, unless too
	// many are asked about: then the client has to ask again.
	Wait
)
