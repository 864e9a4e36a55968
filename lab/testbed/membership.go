package testbed

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/ipv4"
)

// Membership is a host's in a multicast group.
type Membership struct{ socket net.PacketConn }

// JoinGroup has a host be a member of a group by its first interface.
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

// FrameWatch has all frames that come in by an interface looked at.
type FrameWatch struct{ *frames }

// WatchFrames calls look for each frame that comes in by an interface of a host, which
// overwrites it after the call.
func WatchFrames(host Inside, name string, look func(frame []byte)) (*FrameWatch, error) {
	f, err := openFrames(host, name)
	if err != nil {
		return nil, err
	}
	f.listen(func(frame []byte, _ time.Time) { look(frame) })
	return &FrameWatch{f}, nil
}
