package ebpf

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/packetsocket"
	"github.com/sluice-net/sluice/services/handover/mobile/datapath"
)

// Datapath carries frames between a VNI and the attached interfaces by programs in the kernel. No
// frame passes before the first Use. The methods may be called concurrently; changes are made one
// after the other. Open and the methods act on the network namespace of the thread that calls them,
// which must be the same each time.
//
// A Datapath changes no address, route or link state of the interfaces: these are the daemon's. The
// VNI is up when Open returns. The programs of a killed daemon continue to work; the next Open takes
// over the VNI with its addresses, and removes the rest of what was left.
type Datapath struct {
	config datapath.Config
	log    *slog.Logger
	hooks  hooks

	mu       sync.Mutex
	closed   bool
	vniIndex int
	progs    *shared
	nics     map[string]*nic
	current  datapath.Choice
}

// nic is an attached interface.
type nic struct {
	datapath.Interface
	index   int
	slot    uint32
	receive *ebpf.Program
	groups  *packetsocket.Socket // makes the interface accept all groups
}

// close closes the program and the socket.
func (n *nic) close() {
	_ = n.receive.Close()
	_ = n.groups.Close()
}

// errClosed is returned by methods after Close.
var errClosed = errors.New("the datapath is closed")

// Open creates the VNI and attaches the interfaces. It removes programs that a killed daemon has
// left, and takes over its VNI.
func Open(ctx context.Context, c datapath.Config) (*Datapath, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	d := &Datapath{config: c, log: c.Log, hooks: hooksOf(c.VNI), nics: map[string]*nic{}}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if err := Probe(); err != nil {
		return nil, err
	}
	if err := d.open(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// open does the work of Open that Close undoes.
func (d *Datapath) open(ctx context.Context) error {
	stale, err := d.hooks.sweep()
	if err != nil {
		return err
	}
	if len(stale) > 0 {
		d.log.Info("removed what an earlier daemon had left", "interfaces", stale)
	}
	if err := d.makeShared(); err != nil {
		return err
	}
	for _, i := range d.config.Interfaces {
		if err := d.Attach(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// makeShared creates the VNI, and what the programs of all interfaces share.
func (d *Datapath) makeShared() error {
	vni, err := makeVNI(d.config)
	if err != nil {
		return err
	}
	progs, err := loadShared(vni.Attrs().Index, d.config.VNIMAC)
	if err != nil {
		return err
	}
	d.progs, d.vniIndex = progs, vni.Attrs().Index
	return d.hooks.attach(vni, egress, d.progs.send)
}

// Attach adds an interface, or attaches it again if its MAC address has changed or if it was
// unplugged and came back. The interface carries no frames until Use names it.
func (d *Datapath) Attach(_ context.Context, i datapath.Interface) error {
	if err := d.config.CheckInterface(i); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed
	}
	link, err := netlink.LinkByName(i.Name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", i.Name, err)
	}
	old := d.nics[i.Name]
	if old != nil && old.index == link.Attrs().Index && old.MAC == i.MAC {
		return nil
	}
	slot, err := d.freeSlot(old)
	if err != nil {
		return err
	}
	if old != nil {
		if err := d.drop(old); err != nil {
			return err
		}
	}
	n, err := d.take(link, i, slot)
	if err != nil {
		return errors.Join(err, d.publish(d.current))
	}
	d.nics[i.Name] = n
	d.fitMTU()
	return d.publish(d.current) // the interface may be in use and have a new index or address
}

// freeSlot returns the slot for an interface: the slot that it had before, or a free one with cleared
// counters. The slot is the number of the interface's bit and counters in the programs' maps.
func (d *Datapath) freeSlot(old *nic) (uint32, error) {
	if old != nil {
		return old.slot, nil
	}
	for slot := range uint32(datapath.MaxInterfaces) {
		used := false
		for _, n := range d.nics {
			used = used || n.slot == slot
		}
		if !used {
			return slot, d.progs.clear(slot)
		}
	}
	return 0, fmt.Errorf("all %d places for interfaces are taken", datapath.MaxInterfaces)
}

// take attaches an interface's program.
func (d *Datapath) take(link netlink.Link, i datapath.Interface, slot uint32) (*nic, error) {
	n := &nic{Interface: i, index: link.Attrs().Index, slot: slot}
	var err error
	if n.receive, err = d.progs.loadReceiver(i, slot); err != nil {
		return nil, err
	}
	if n.groups, err = acceptMulticast(link.Attrs()); err != nil {
		_ = n.receive.Close()
		return nil, err
	}
	if err := d.hooks.attach(link, ingress, n.receive); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

// drop detaches a program from its interface, if the interface still exists.
func (d *Datapath) drop(n *nic) error {
	delete(d.nics, n.Name)
	n.close()
	link, err := netlink.LinkByIndex(n.index)
	if err == nil {
		_, err = d.hooks.detach(link)
	}
	if err != nil && !gone(err) {
		return fmt.Errorf("interface %s: %w", n.Name, err)
	}
	return nil
}

// Detach removes an interface, even one that has vanished. If it was in use, it no longer is.
func (d *Datapath) Detach(_ context.Context, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.nics[name]
	switch {
	case d.closed:
		return errClosed
	case n == nil:
		return fmt.Errorf("interface %s: %w", name, datapath.ErrUnknownInterface)
	}
	if err := d.publish(d.current.Without(name)); err != nil {
		return err
	}
	defer d.fitMTU()
	return d.drop(n)
}

// Use makes one atomic change, by one update of a map: frames of the VNI leave by send, and frames
// that come in by one of receive reach the VNI. If send is empty, frames of the VNI are dropped.
// Frames of an attached interface that is not in receive are dropped.
//
// The network may send every packet to several interfaces. Each packet is delivered once, from the
// interface in receive that brought it first.
//
// A switch that neither loses nor duplicates a packet, while the network sends to both places, is
// Use(new, [old new]) followed by Use(new, [new]) when the old place has no packets in flight any
// more.
//
// When Use returns nil the change is in force. After an error the datapath is unchanged.
func (d *Datapath) Use(_ context.Context, send string, receive []string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed
	}
	c, err := datapath.NewChoice(send, receive, func(name string) bool { return d.nics[name] != nil })
	if err != nil {
		return err
	}
	return d.publish(c)
}

// publish writes a choice to the map that the programs read. Interfaces that are being replaced
// count as not in use.
func (d *Datapath) publish(c datapath.Choice) error {
	var raw datapathChoice
	if n := d.nics[c.Send]; n != nil {
		raw.Send, raw.Slot, raw.Mac = uint32(n.index), n.slot, n.MAC
	}
	for _, name := range c.Receive {
		if n := d.nics[name]; n != nil {
			raw.Receive |= 1 << n.slot
		}
	}
	if len(d.nics) > 1 {
		raw.Merge = 1 // even with one interface to receive from: another may bring the same packets later
	}
	if err := d.progs.maps.Choices.Put(uint32(0), raw); err != nil {
		return fmt.Errorf("switching to %q: %w", c.Send, err)
	}
	d.current = c
	return nil
}

// Stats returns the counters.
func (d *Datapath) Stats() (datapath.Stats, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return datapath.Stats{}, errClosed
	}
	s := datapath.Stats{
		Send: d.current.Send, Receive: slices.Clone(d.current.Receive),
		Interfaces: map[string]datapath.InterfaceStats{},
	}
	for name, n := range d.nics {
		c, err := d.progs.counters(n.slot)
		if err != nil {
			return s, err
		}
		s.Interfaces[name] = datapath.InterfaceStats{
			SentPackets: c.Sent, SentBytes: c.SentBytes, ReceivedPackets: c.Received, ReceivedBytes: c.ReceivedBytes,
			Inactive: c.Inactive, Foreign: c.Foreign, Doubled: c.Doubled,
		}
	}
	unsent, err := d.progs.counters(unsentSlot)
	s.Unsent = unsent.Sent
	return s, err
}

// Traffic returns the counters of one interface that show whether its path works. It must be cheap,
// because it is called 50 times a second.
func (d *Datapath) Traffic(name string) (datapath.Traffic, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.nics[name]
	switch {
	case d.closed:
		return datapath.Traffic{}, errClosed
	case n == nil:
		return datapath.Traffic{}, fmt.Errorf("interface %s: %w", name, datapath.ErrUnknownInterface)
	}
	c, err := d.progs.counters(n.slot)
	t := datapath.Traffic{Sent: c.Sent, Heard: c.Heard}
	if c.HeardAt > 0 {
		t.Quiet = since(c.HeardAt)
	}
	return t, err
}

// since returns the time that has passed since at, which is a time of the programs' clock in
// nanoseconds.
func since(at uint64) time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // every Linux has this clock
	return max(time.Duration(now.Nano()-int64(at)), 0)
}

// Close removes everything that the datapath has created, including the VNI.
func (d *Datapath) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	for _, n := range d.nics {
		n.close()
	}
	if d.progs != nil {
		d.progs.close()
	}
	_, err := d.hooks.sweep()
	return errors.Join(err, removeVNI(d.config.VNI))
}

// FitMTU sets the VNI's MTU to fit the attached interfaces, after the MTU of one has changed. Attach
// and Detach do so by themselves.
func (d *Datapath) FitMTU(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed
	}
	return d.setMTU()
}

// fitMTU adapts the VNI's MTU after interfaces have been attached or detached.
func (d *Datapath) fitMTU() {
	if err := d.setMTU(); err != nil {
		d.log.Warn("setting the virtual interface's MTU", "interface", d.config.VNI, "error", err)
	}
}

// setMTU sets the VNI's MTU, if any interface is attached.
func (d *Datapath) setMTU() error {
	if len(d.nics) == 0 {
		return nil
	}
	link, err := netlink.LinkByName(d.config.VNI)
	if err == nil {
		err = netlink.LinkSetMTU(link, d.config.FitMTU(slices.Collect(maps.Keys(d.nics))))
	}
	if err != nil {
		return fmt.Errorf("MTU of the virtual interface %s: %w", d.config.VNI, err)
	}
	return nil
}
