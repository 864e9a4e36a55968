package openflow

import "fmt"

// Configuration bits of a port, set by the controller or the administrator.
const (
	PortConfigDown       uint32 = 1 << 0
	PortConfigNoRecv     uint32 = 1 << 2
	PortConfigNoFwd      uint32 = 1 << 5
	PortConfigNoPacketIn uint32 = 1 << 6
)

var portConfigNames = []string{"down", "", "no_recv", "", "", "no_fwd", "no_packet_in"}

// State bits of a port.
const (
	PortStateLinkDown uint32 = 1 << 0
	PortStateBlocked  uint32 = 1 << 1
	PortStateLive     uint32 = 1 << 2
)

var portStateNames = []string{"link_down", "blocked", "live"}

var portFeatureNames = []string{
	"10mb-hd", "10mb-fd", "100mb-hd", "100mb-fd", "1gb-hd", "1gb-fd", "10gb-fd", "40gb-fd", "100gb-fd", "1tb-fd",
	"other", "copper", "fiber", "autoneg", "pause", "pause-asym",
}

const portSize = 64

// Port describes a port of a switch.
type Port struct {
	Number     uint32
	MAC        MAC
	Name       string // at most 15 bytes
	Config     uint32
	State      uint32
	Current    uint32 // features: speeds and media
	Advertised uint32
	Supported  uint32
	Peer       uint32
	CurrSpeed  uint32 // kbit/s
	MaxSpeed   uint32 // kbit/s
}

// Up reports whether the port can carry packets: it is not configured down, and its link is up.
func (p *Port) Up() bool {
	return p.Config&PortConfigDown == 0 && p.State&PortStateLinkDown == 0
}

func (p *Port) append(b []byte) []byte {
	b = pad(put32(b, p.Number), 4)
	b = pad(append(b, p.MAC[:]...), 2)
	b = putString(b, p.Name, 16)
	for _, v := range [...]uint32{p.Config, p.State, p.Current, p.Advertised, p.Supported, p.Peer, p.CurrSpeed, p.MaxSpeed} {
		b = put32(b, v)
	}
	return b
}

func parsePort(b []byte) Port {
	return Port{
		Number: be.Uint32(b), MAC: MAC(b[8:14]), Name: cString(b[16:32]),
		Config: be.Uint32(b[32:]), State: be.Uint32(b[36:]),
		Current: be.Uint32(b[40:]), Advertised: be.Uint32(b[44:]), Supported: be.Uint32(b[48:]), Peer: be.Uint32(b[52:]),
		CurrSpeed: be.Uint32(b[56:]), MaxSpeed: be.Uint32(b[60:]),
	}
}

// String describes the port.
func (p Port) String() string {
	return fmt.Sprintf("port %s(%q) mac=%v config=%s state=%s curr=%s adv=%s supp=%s peer=%s speed=%d/%d kbit/s",
		PortName(p.Number), p.Name, p.MAC, bitNames(uint64(p.Config), portConfigNames), bitNames(uint64(p.State), portStateNames),
		bitNames(uint64(p.Current), portFeatureNames), bitNames(uint64(p.Advertised), portFeatureNames),
		bitNames(uint64(p.Supported), portFeatureNames), bitNames(uint64(p.Peer), portFeatureNames), p.CurrSpeed, p.MaxSpeed)
}

// Reasons for a port-status message.
const (
	PortAdded    uint8 = 0
	PortDeleted  uint8 = 1
	PortModified uint8 = 2
)

// PortStatus reports that a port was added, removed or changed.
type PortStatus struct {
	Reason uint8
	Port   Port
}

// MsgType returns TypePortStatus.
func (*PortStatus) MsgType() MsgType { return TypePortStatus }

// AppendTo appends the message to b.
func (m *PortStatus) AppendTo(b []byte, xid uint32) ([]byte, error) {
	start := len(b)
	b = pad(append(begin(b, TypePortStatus, xid), m.Reason), 7)
	return finish(m.Port.append(b), start, nil)
}

// Decode reads the message.
func (m *PortStatus) Decode(b []byte) error {
	p, err := body(b, TypePortStatus)
	if err != nil {
		return err
	}
	m.Reason, m.Port = p[0], parsePort(p[8:])
	return nothingLeft("PORT_STATUS", p[8+portSize:])
}

// String describes the message.
func (m *PortStatus) String() string {
	return fmt.Sprintf("PORT_STATUS %s %v", name8(m.Reason, "add", "delete", "modify"), m.Port)
}

// PortMod changes the configuration of a port.
type PortMod struct {
	Port         uint32
	MAC          MAC    // must be the port's, as proof of identity
	Config, Mask uint32 // bits to write, and which bits
	Advertise    uint32 // features; 0: unchanged
}

// MsgType returns TypePortMod.
func (*PortMod) MsgType() MsgType { return TypePortMod }

// AppendTo appends the message to b.
func (m *PortMod) AppendTo(b []byte, xid uint32) ([]byte, error) {
	start := len(b)
	b = pad(put32(begin(b, TypePortMod, xid), m.Port), 4)
	b = pad(append(b, m.MAC[:]...), 2)
	b = put32(put32(put32(b, m.Config), m.Mask), m.Advertise)
	return finish(pad(b, 4), start, nil)
}

// Decode reads the message.
func (m *PortMod) Decode(b []byte) error {
	p, err := body(b, TypePortMod)
	if err != nil {
		return err
	}
	*m = PortMod{
		Port: be.Uint32(p), MAC: MAC(p[8:14]),
		Config: be.Uint32(p[16:]), Mask: be.Uint32(p[20:]), Advertise: be.Uint32(p[24:]),
	}
	return nothingLeft("PORT_MOD", p[32:])
}

// String describes the message.
func (m *PortMod) String() string {
	return fmt.Sprintf("PORT_MOD port=%s mac=%v config=%s mask=%s advertise=%s", PortName(m.Port), m.MAC,
		bitNames(uint64(m.Config), portConfigNames), bitNames(uint64(m.Mask), portConfigNames),
		bitNames(uint64(m.Advertise), portFeatureNames))
}
