package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/namespace"
)

// moveTimeout bounds a move. lockPoll is the interval at which a move tries to get the lab's lock
// while another process holds it.
const (
	moveTimeout = 30 * time.Second
	lockPoll    = 5 * time.Millisecond
)

// MoveLink moves the switch's end of a host's link to another switch, at its lowest free port, as
// when a device with one radio leaves an access point and joins another. The host's interface loses
// its carrier meanwhile and keeps everything else. The old switch loses a port and the new one gets
// one. Frames in flight are lost.
func (l *Lab) MoveLink(ctx context.Context, link, to string) error {
	return l.MoveLinkToPort(ctx, link, to, 0)
}

// MoveLinkToPort does what MoveLink does, to the given port; 0 means the lowest free one.
func (l *Lab) MoveLinkToPort(ctx context.Context, link, to string, port int) error {
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	l.moves.Lock()
	defer l.moves.Unlock()
	release, err := waitLock(ctx, l.dir)
	if err != nil {
		return fmt.Errorf("lab %s: %w", l.Name(), err)
	}
	defer release()
	if err := l.move(ctx, link, to, port); err != nil {
		return fmt.Errorf("move link %s to %s: %w", link, to, err)
	}
	return nil
}

// waitLock waits until it has the lab's lock.
func waitLock(ctx context.Context, dir string) (release func(), err error) {
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		release, err := lockDir(dir)
		if err == nil || errors.Is(err, ErrNoLab) {
			return release, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// move moves a link and records its new place. It reads the record first, because another process
// may have moved links as well.
func (l *Lab) move(ctx context.Context, link, to string, port int) error {
	r, err := readRecord(l.dir)
	if err != nil {
		return err
	}
	known := r.Plan.Wires
	l.links.Store(&known)
	i, err := r.Plan.movable(link, to)
	if err != nil {
		return err
	}
	old := r.Plan.Wires[i]
	from := old.switchEnd()
	target, err := r.Plan.portAt(from, to, port)
	if err != nil || target.Node == from.Node && target.Port == from.Port {
		return err
	}
	moved := old.withSwitchEnd(target)
	up, err := old.cableUp()
	if err != nil {
		return err
	}
	plugIn, err := l.plugOut(ctx, link)
	if err != nil {
		return err
	}
	m := movement{lab: l, temp: fmt.Sprintf("moving%d", i), up: up}
	if err := m.run(ctx, moved, from, target); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), moveTimeout)
		defer cancel()
		m.back = true
		return errors.Join(err, m.run(ctx, old, target, from), plugIn(ctx))
	}
	if err := plugIn(ctx); err != nil {
		return err
	}
	wires := slices.Clone(known) // Readers may still hold the old slice.
	wires[i] = moved
	r.Plan.Wires = wires
	l.links.Store(&wires)
	return writeRecord(l.dir, r)
}

// plugOut takes the carrier from both ends of a link in the delay line, whose host would not notice
// otherwise that the switch's end has gone. The returned function plugs the link in again if it was
// plugged in.
func (l *Lab) plugOut(ctx context.Context, link string) (plugIn func(context.Context) error, err error) {
	k := l.Link(link)
	nothing := func(context.Context) error { return nil }
	if !k.inDelayLine() {
		return nothing, nil
	}
	state, err := k.Stats(ctx)
	if err != nil || !state.Up {
		return nothing, err
	}
	return func(ctx context.Context) error { return k.SetUp(ctx, true) }, k.SetUp(ctx, false)
}

// movable returns the index of a link that can be moved to a switch.
func (p plan) movable(link, to string) (int, error) {
	target := p.Topology.switchIndex(to)
	if target < 0 {
		return 0, fmt.Errorf("there is no switch %q", to)
	}
	for i, w := range p.Wires {
		if w.Link.Name != link {
			continue
		}
		if (w.A.Port == 0) == (w.B.Port == 0) {
			return 0, errors.New("only a link between a host and a switch can be moved")
		}
		if p.Topology.Switches[target].Offload != w.switchEnd().Offload {
			return 0, errors.New("one of the switches has offload and the other has not")
		}
		return i, nil
	}
	return 0, errors.New("there is no such link")
}

// portAt returns the link's end as it will be at another switch.
func (p plan) portAt(end iface, to string, port int) (iface, error) {
	taken := map[int]string{}
	for _, w := range p.Wires {
		for _, f := range []iface{w.A, w.B} {
			if f.Node == to {
				taken[f.Port] = w.Link.Name
			}
		}
	}
	switch {
	case end.Node == to && (port == 0 || port == end.Port):
		return end, nil
	case port < 0 || port > maxPort:
		return end, fmt.Errorf("%d is not a port of a switch, 1 to %d", port, maxPort)
	case port != 0 && taken[port] != "":
		return end, fmt.Errorf("port %d is taken by link %s", port, taken[port])
	case port == 0:
		for port = 1; taken[port] != ""; port++ {
		}
	}
	end.Node, end.Namespace, end.Port = to, p.namespace(to), port
	end.Name, end.MAC = portName(port), mac(0x12, p.Topology.switchIndex(to), port)
	return end, nil
}

// switchEnd returns the end of a host's link that is at a switch.
func (w wire) switchEnd() iface {
	if w.A.Port != 0 {
		return w.A
	}
	return w.B
}

func (w wire) withSwitchEnd(f iface) wire {
	if w.A.Port != 0 {
		w.A, w.Link.A.Node, w.Link.A.Port = f, f.Node, f.Port
	} else {
		w.B, w.Link.B.Node, w.Link.B.Port = f, f.Node, f.Port
	}
	return w
}

// movement carries an interface from one switch to another. Its steps skip what has been done
// already, so that the same steps also undo an unfinished move.
type movement struct {
	lab  *Lab
	temp string // the interface's name during the move; the other name may be taken in the new namespace
	up   bool   // reports whether the cable was plugged in
	back bool   // the move has failed and is being undone: the switch may not answer
}

func (m movement) run(ctx context.Context, w wire, from, to iface) error {
	if err := m.lab.Switch(from.Node).removePort(ctx, from, !m.back); err != nil {
		return err
	}
	if err := inNamespace(from.Namespace, func() error { return m.send(from, to) }); err != nil {
		return err
	}
	if err := inNamespace(to.Namespace, func() error { return m.receive(to) }); err != nil {
		return err
	}
	if err := m.lab.Switch(to.Node).addPort(ctx, to, m.lab.tcShapes(w)); err != nil {
		return err
	}
	if m.lab.tcShapes(w) {
		if err := shapeWithNetem(w); err != nil {
			return err
		}
	}
	if !m.up {
		return nil
	}
	return inNamespace(to.Namespace, func() error { return setInterfaceUp(to.Name, true) })
}

// send takes the interface down and puts it into the other namespace.
func (m movement) send(from, to iface) error {
	link, err := netlink.LinkByName(from.Name)
	if err != nil {
		if link, err = netlink.LinkByName(m.temp); err != nil {
			return nil // It has been sent already: receive looks for it.
		}
	}
	if err := netlink.LinkSetDown(link); err != nil {
		return err
	}
	if err := netlink.LinkSetName(link, m.temp); err != nil {
		return err
	}
	fd, err := unix.Open(namespace.Path(to.Namespace), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return netlink.LinkSetNsFd(link, fd)
}

// receive gives the interface the name and properties of its new place.
func (m movement) receive(to iface) error {
	link, err := netlink.LinkByName(m.temp)
	if err != nil {
		return fmt.Errorf("interface %s: %w", m.temp, err)
	}
	if err := netlink.LinkSetName(link, to.Name); err != nil {
		return err
	}
	to.disableIP()
	return netlink.LinkSetHardwareAddr(link, to.MAC)
}

// addPort makes an interface a port of the running switch.
func (s *LiveSwitch) addPort(ctx context.Context, f iface, shaped bool) error {
	if _, err := s.Vsctl(ctx, s.addPortArgs(f, shaped)...); err != nil {
		return err
	}
	return s.checkPorts(ctx)
}

// removePort takes a port away from a switch. With wait it returns only after the daemon has
// released the interface.
func (s *LiveSwitch) removePort(ctx context.Context, f iface, wait bool) error {
	qos, err := s.Vsctl(ctx, "--if-exists", "get", "Port", f.Name, "qos")
	if err != nil {
		return err
	}
	args := []string{"--if-exists", "del-port", bridgeName, f.Name}
	if qos = strings.TrimSpace(qos); qos != "" && qos != "[]" {
		args = append(args, "--", "destroy", "QoS", qos)
	}
	if !wait {
		args = append([]string{"--no-wait"}, args...)
	}
	_, err = s.Vsctl(ctx, args...)
	return err
}
