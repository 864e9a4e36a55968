package ebpf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Restore compares the VNI and the programs with what the datapath has created, and restores what
// another program has removed or changed. It returns the number of differences. If the VNI itself
// is gone, Restore creates another one, which has no address yet, and attaches all programs again.
// Frames that programs still carry are not held up.
func (d *Datapath) Restore(context.Context) (differences int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return 0, nil
	}
	vni, err := netlink.LinkByName(d.config.VNI)
	switch {
	case err != nil && !gone(err):
		return 0, fmt.Errorf("virtual interface %s: %w", d.config.VNI, err)
	case err != nil || vni.Attrs().Index != d.vniIndex:
		return 1, d.rebuild()
	}
	if differences, err = d.restoreVNI(vni); err != nil {
		return differences, err
	}
	return d.restorePrograms(vni, differences)
}

// restoreVNI compares the address and the state of the VNI's two ends.
func (d *Datapath) restoreVNI(vni netlink.Link) (differences int, err error) {
	end, err := netlink.LinkByName(farEnd(d.config.VNI))
	if err != nil {
		return 0, fmt.Errorf("virtual interface %s: %w", d.config.VNI, err)
	}
	if !bytes.Equal(vni.Attrs().HardwareAddr, d.config.VNIMAC[:]) {
		differences++
		err = netlink.LinkSetHardwareAddr(vni, net.HardwareAddr(d.config.VNIMAC[:]))
	}
	for _, link := range []netlink.Link{vni, end} {
		if link.Attrs().RawFlags&unix.IFF_UP == 0 {
			differences++
			err = errors.Join(err, netlink.LinkSetUp(link))
		}
	}
	if err != nil {
		err = fmt.Errorf("virtual interface %s: %w", d.config.VNI, err)
	}
	return differences, err
}

// restorePrograms attaches the programs again that are not attached, and adds their number to
// differences. Interfaces that are gone have no programs.
func (d *Datapath) restorePrograms(vni netlink.Link, differences int) (int, error) {
	restored, err := d.hooks.restore(vni, egress, d.progs.send)
	if restored {
		differences++
	}
	for _, n := range d.nics {
		link, linkErr := netlink.LinkByIndex(n.index)
		if linkErr != nil {
			continue
		}
		restored, e := d.hooks.restore(link, ingress, n.receive)
		if restored {
			differences++
		}
		err = errors.Join(err, e)
	}
	return differences, err
}

// rebuild creates the VNI and all programs again. The programs contain the VNI's number, so the old
// ones cannot be used any more. After an error the next call of Restore tries again.
func (d *Datapath) rebuild() (err error) {
	current, old := d.current, d.nics
	defer func() {
		if err != nil {
			d.nics, d.vniIndex = old, 0
		}
	}()
	for _, n := range old {
		n.close()
	}
	d.progs.close()
	if _, err := d.hooks.sweep(); err != nil {
		return err
	}
	d.nics = map[string]*nic{}
	if err := d.makeShared(); err != nil {
		return err
	}
	for name, n := range old {
		link, gone := netlink.LinkByIndex(n.index)
		if gone != nil {
			current = current.Without(name)
			continue // Detach has yet to be called
		}
		if d.nics[name], err = d.take(link, n.Interface, n.slot); err != nil {
			return err
		}
	}
	d.fitMTU()
	return d.publish(current)
}

// restore attaches a program to a hook of an interface if another program or none is attached in its
// place, and reports whether it had to.
func (h hooks) restore(link netlink.Link, parent uint32, p *ebpf.Program) (restored bool, err error) {
	info, err := p.Info()
	if err != nil {
		return false, fmt.Errorf("interface %s: asking for a program: %w", link.Attrs().Name, err)
	}
	id, _ := info.ID()
	filters, err := netlink.FilterList(link, parent)
	if err != nil {
		return false, fmt.Errorf("interface %s: listing programs: %w", link.Attrs().Name, err)
	}
	for _, f := range filters {
		if b, ok := f.(*netlink.BpfFilter); ok && b.Name == h.name && b.Id == int(id) {
			return false, nil
		}
	}
	return true, h.set(link, parent, p, netlink.FilterReplace)
}
