package mobile

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/bpf"

	"github.com/sluice-net/sluice/internal/packetsocket"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile/datapath"
	"github.com/sluice-net/sluice/services/handover/mobile/device"
	"github.com/sluice-net/sluice/services/handover/mobile/lease"
	"github.com/sluice-net/sluice/services/handover/mobile/probe"
)

// conn is a socket on an interface.
type conn interface {
	Send(frame []byte) error
	Receive(ctx context.Context) (packetsocket.Frame, error)
	io.Closer
}

// system holds the operations on the machine that the daemon needs. Only the loop calls its methods,
// except watch and those that open sockets.
type system interface {
	// watch reports the state of the interfaces until ctx ends.
	watch(ctx context.Context, names []string, report func(device.Link)) error
	// link returns the present state of one interface.
	link(name string) (device.Link, error)
	// adopt dedicates an interface to the virtual interface. forget drops the changes to an interface
	// that is gone.
	adopt(name string) error
	forget(name string) error
	// radio returns the radio's state, and false if there is no radio.
	radio(name string, index int) (device.Radio, bool)
	// configure configures the virtual interface by a lease.
	configure(l lease.Lease) error
	unconfigure() error
	// restoreLease and restoreAdopted restore what configure and adopt have made of an interface, and
	// return the number of differences that they have found.
	restoreLease(l lease.Lease) (int, error)
	restoreAdopted(name string) (int, error)
	neighbour(router netip.Addr, mac openflow.MAC) error
	// dhcp opens a socket for DHCP on an interface, and probes a socket for the answers to probes.
	dhcp(index int) (conn, error)
	probes(index int) (conn, error)
}

// forwarder holds the methods that the daemon needs of an *ebpf.Datapath. Tests replace the datapath by
// a fake that only records its calls.
type forwarder interface {
	Attach(ctx context.Context, i datapath.Interface) error
	Detach(ctx context.Context, name string) error
	FitMTU(ctx context.Context) error
	Restore(ctx context.Context) (differences int, err error)
	Use(ctx context.Context, send string, receive []string) error
	SendAgain(within time.Duration, gateway openflow.MAC) (sent int, err error)
	Stats() (datapath.Stats, error)
	Traffic(name string) (datapath.Traffic, error)
}

// machine is the real system.
type machine struct {
	cfg     Config
	journal *device.Journal
}

func (m *machine) watch(ctx context.Context, names []string, report func(device.Link)) error {
	return device.Watch(ctx, names, report)
}

func (m *machine) link(name string) (device.Link, error) { return device.ReadLink(name) }

func (m *machine) adopt(name string) error  { return m.journal.Adopt(name) }
func (m *machine) forget(name string) error { return m.journal.Forget(name) }

func (m *machine) radio(name string, index int) (device.Radio, bool) {
	return device.ReadRadio(name, index)
}

func (m *machine) configure(l lease.Lease) error {
	if err := device.Configure(m.cfg.VNI, l, m.cfg.Metric); err != nil {
		return err
	}
	if m.cfg.Resolver == "" || len(l.DNS) == 0 {
		return nil
	}
	written, err := m.journal.SetResolver(m.cfg.Resolver, l)
	if err == nil && !written {
		m.cfg.Log.Warn("the file of name servers belongs to another program and is left alone", "file", m.cfg.Resolver, "servers", l.DNS)
	}
	return err
}

func (m *machine) restoreLease(l lease.Lease) (int, error) {
	return device.RestoreLease(m.cfg.VNI, l, m.cfg.Metric)
}

func (m *machine) restoreAdopted(name string) (int, error) { return device.RestoreAdopted(name) }

func (m *machine) unconfigure() error { return device.Unconfigure(m.cfg.VNI) }

func (m *machine) neighbour(router netip.Addr, mac openflow.MAC) error {
	return device.SetNeighbour(m.cfg.VNI, router, mac)
}

func (m *machine) dhcp(index int) (conn, error) {
	return openSocket(index, packetsocket.UDPTo(lease.ClientPort))
}

func (m *machine) probes(index int) (conn, error) { return openSocket(index, probe.Answers()) }

// openSocket opens a packet socket for the frames that pass a filter.
func openSocket(index int, filter []bpf.Instruction) (conn, error) {
	ifi, err := net.InterfaceByIndex(index)
	if err != nil {
		return nil, fmt.Errorf("interface %d: %w", index, err)
	}
	return packetsocket.Open(ifi, packetsocket.Options{Filter: filter})
}
