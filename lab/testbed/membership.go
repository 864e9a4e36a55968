package testbed

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/ipv4"
)

// Membership is a host's membership of a multicast group.
type Membership struct{ socket net.PacketConn }

// JoinGroup makes a host a member of a group by its first interface.
func JoinGroup(host Inside, group netip.Addr) (*Membership, error) {
	m := &Membership{}
	err := host.Do(func() (err error) {
		device, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		if m.socket, err = net.ListenPacket("udp4", "0.0.0.0:0"); err != nil {
			return err
		}
		if err := ipv4.NewPacketConn(m.socket).JoinGroup(device, &net.UDPAddr{IP: group.AsSlice()}); err != nil {
			_ = m.socket.Close()
			return err
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("join group %v: %w", group, err)
	}
	return m, nil
}

// Close leaves the group.
func (m *Membership) Close() { _ = m.socket.Close() }

// FrameWatch passes all frames that arrive by an interface to a function.
type FrameWatch struct{ *frames }

// WatchFrames calls look for each frame that arrives by an interface of a host. The frame is
// overwritten after the call.
func WatchFrames(host Inside, name string, look func(frame []byte)) (*FrameWatch, error) {
	f, err := openFrames(host, name)
	if err != nil {
		return nil, err
	}
	f.listen(func(frame []byte, _ time.Time) { look(frame) })
	return &FrameWatch{f}, nil
}
