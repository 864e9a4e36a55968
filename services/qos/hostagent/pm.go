package hostagent

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/genl"
)

// Constants of linux/mptcp_pm.h.
const (
	pmFamily  = "mptcp_pm"
	pmVersion = 1

	pmSubflowCreate  = 10
	pmSubflowDestroy = 11

	pmAttrAddr   = 1
	pmAttrToken  = 4
	pmAttrRemote = 6

	pmAddrFamily = 1
	pmAddrID     = 2
	pmAddr4      = 3
	pmAddr6      = 4
	pmAddrPort   = 5
)

// PathManager opens and ends subflows through the kernel's user-space path manager (since
// Linux 5.19). It works only for connections that started while that path manager was
// selected.
type PathManager struct{ family uint16 }

// NewPathManager finds the kernel's path manager.
func NewPathManager() (*PathManager, error) {
	f, err := genl.Find(pmFamily)
	if err != nil {
		return nil, fmt.Errorf("the kernel has no path manager for MPTCP (generic netlink %s): Linux 5.19 or later is needed, with MPTCP: %w", pmFamily, err)
	}
	return &PathManager{f.ID}, nil
}

// Open opens a subflow of a connection from a local address, from a port that the kernel
// chooses. id identifies the local address within the connection.
func (m *PathManager) Open(token uint32, local netip.Addr, id uint8, remote netip.AddrPort) error {
	from := append(address(netip.AddrPortFrom(local, 0)), nl.NewRtAttr(pmAddrID, nl.Uint8Attr(id)))
	if err := m.ask(pmSubflowCreate, token, from, remote); err != nil {
		return fmt.Errorf("opening a subflow from %v to %v: %w", local, remote, err)
	}
	return nil
}

// End ends a subflow of a connection.
func (m *PathManager) End(token uint32, local, remote netip.AddrPort) error {
	if err := m.ask(pmSubflowDestroy, token, address(local), remote); err != nil {
		return fmt.Errorf("ending the subflow from %v to %v: %w", local, remote, err)
	}
	return nil
}

// address returns the attributes of an address, with its port if it has one.
func address(a netip.AddrPort) []*nl.RtAttr {
	family, kind := unix.AF_INET, pmAddr4
	if a.Addr().Is6() {
		family, kind = unix.AF_INET6, pmAddr6
	}
	attrs := []*nl.RtAttr{nl.NewRtAttr(pmAddrFamily, nl.Uint16Attr(uint16(family))), nl.NewRtAttr(kind, a.Addr().AsSlice())}
	if a.Port() != 0 {
		attrs = append(attrs, nl.NewRtAttr(pmAddrPort, nl.Uint16Attr(a.Port())))
	}
	return attrs
}

func (m *PathManager) ask(command uint8, token uint32, local []*nl.RtAttr, remote netip.AddrPort) error {
	req := nl.NewNetlinkRequest(int(m.family), unix.NLM_F_ACK)
	req.AddData(genl.Message{Command: command, Version: pmVersion})
	req.AddData(nl.NewRtAttr(pmAttrToken, nl.Uint32Attr(token)))
	for kind, attrs := range map[int][]*nl.RtAttr{pmAttrAddr: local, pmAttrRemote: address(remote)} {
		nest := nl.NewRtAttr(kind|unix.NLA_F_NESTED, nil)
		for _, a := range attrs {
			nest.AddChild(a)
		}
		req.AddData(nest)
	}
	_, err := req.Execute(unix.NETLINK_GENERIC, 0)
	return err
}
