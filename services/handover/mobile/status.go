package mobile

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/drift"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile/lease"
)

// historySize is how many moves are kept.
const historySize = 64

// Counters counts events since the daemon's start.
type Counters struct {
	Moves          uint64 `json:"moves"`
	Failed         uint64 `json:"failed"`
	Renewals       uint64 `json:"renewals"`
	LeasesLost     uint64 `json:"leases_lost"`
	AddressChanges uint64 `json:"address_changes"`
}

// Status is the state of the daemon.
type Status struct {
	Version string    `json:"version,omitempty"`
	Device  string    `json:"device,omitempty"`
	Started time.Time `json:"started"`
	VNI     VNI       `json:"vni"`
	// Active is the interface in use; empty before the first lease.
	Active string    `json:"active,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	// Joining is the target of a move in progress.
	Joining string `json:"joining,omitempty"`
	// Requested is the interface that a user or the network has asked for. RequestedUntil is when
	// the request ends; zero means without end.
	Requested      string            `json:"wish,omitempty"`
	RequestedUntil time.Time         `json:"wish_ends,omitzero"`
	Lease          *lease.Lease      `json:"lease,omitempty"`
	Interfaces     []InterfaceStatus `json:"interfaces"`
	// Moves holds the latest moves, in the order of time.
	Moves    []Move   `json:"moves"`
	Counters Counters `json:"counters"`
	// Drift counts what was not as the daemon has set it up, because another program had changed it.
	Drift []drift.Count `json:"drift,omitempty"`
	// Orders describes the state of the connection to the controller that gives orders.
	Orders string `json:"orders,omitempty"`
}

// VNI is the state of the virtual interface.
type VNI struct {
	Name    string       `json:"name"`
	MAC     openflow.MAC `json:"mac"`
	Address netip.Prefix `json:"address,omitzero"`
	// Unsent counts packets for which there was no interface to send by.
	Unsent uint64 `json:"unsent"`
}

// InterfaceStatus is the state of an interface.
type InterfaceStatus struct {
	Name    string       `json:"name"`
	MAC     openflow.MAC `json:"mac,omitzero"`
	Present bool         `json:"present"`
	Link    bool         `json:"link"`
	// Sends and Receives report whether the datapath sends and receives by the interface.
	Sends    bool `json:"sends"`
	Receives bool `json:"receives"`
	// Joined reports whether the network has granted the lease on the interface.
	Joined bool `json:"joined"`
	Cost   int  `json:"cost"`
	// Signal is in dBm; 0 if it is unknown.
	Signal int          `json:"signal,omitempty"`
	AP     openflow.MAC `json:"ap,omitzero"`
	// Loss is the share, from 0 to 1, of the latest probes of the gateway that was lost. Probes is
	// the number of these probes, and RTT the latest round trip.
	Loss   float64       `json:"loss"`
	Probes int           `json:"probes"`
	RTT    time.Duration `json:"rtt_ns,omitempty"`
	// Silent reports whether nothing is received on the interface any more although it has a link.
	Silent bool `json:"silent"`
	// Barred is the reason why the interface is not used for now, and Until is when that ends. Barred
	// is empty for an interface that may be used.
	Barred   string    `json:"barred,omitempty"`
	Until    time.Time `json:"until,omitzero"`
	Sent     uint64    `json:"sent_packets"`
	Received uint64    `json:"received_packets"`
	Doubled  uint64    `json:"doubled_packets"`
}

// Status returns the daemon's state. It reads the datapath's counters outside the loop, so that a
// datapath that does not answer cannot delay moves.
func (d *Daemon) Status(ctx context.Context) (Status, error) {
	var s Status
	if !d.inbox.call(ctx, func() { s = d.status() }) {
		return Status{}, errStopping
	}
	stats, err := d.path.Stats()
	if err != nil {
		d.log.Warn("the datapath's counters could not be read", "error", err)
	}
	s.VNI.Unsent = stats.Unsent
	for n := range s.Interfaces {
		i := &s.Interfaces[n]
		c := stats.Interfaces[i.Name]
		i.Sends, i.Receives = stats.Send == i.Name, slices.Contains(stats.Receive, i.Name)
		i.Sent, i.Received, i.Doubled = c.SentPackets, c.ReceivedPackets, c.Doubled
	}
	return s, nil
}

// status returns the state that the loop owns.
func (d *Daemon) status() Status {
	s := Status{
		Version: d.cfg.Version, Device: d.cfg.Device, Started: d.started,
		VNI:       VNI{Name: d.cfg.VNI, MAC: d.cfg.VNIMAC},
		Requested: d.requested, RequestedUntil: d.requestedUntil,
		Moves: slices.Clone(d.moves), Counters: d.count, Interfaces: []InterfaceStatus{}, Drift: d.drift.List(), Orders: d.orders.state,
	}
	if s.Moves == nil {
		s.Moves = []Move{}
	}
	if d.active != nil {
		s.Active, s.Since = d.active.Name, d.since
	}
	if d.attempt != nil {
		s.Joining = d.attempt.target.Name
	}
	if d.leaseholder.lease != nil {
		l := *d.leaseholder.lease
		s.Lease = &l
		if d.active != nil {
			s.VNI.Address = l.Address
		}
	}
	now := time.Now()
	for _, i := range d.interfaces {
		f := InterfaceStatus{
			Name: i.Name, MAC: i.link.MAC, Present: i.link.Present, Link: i.link.Carrier, Joined: i.joined, Cost: i.Cost,
			Signal: i.radio.Signal, AP: i.radio.AP, Loss: i.sample.Loss, Probes: i.sample.Probes, RTT: i.sample.RTT, Silent: i.sample.Silent,
		}
		if now.Before(i.backoff.until) {
			f.Barred, f.Until = i.backoff.why, i.backoff.until
		}
		s.Interfaces = append(s.Interfaces, f)
	}
	return s
}
