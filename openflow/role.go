package openflow

import "fmt"

// Role is the role of a controller for a switch.
type Role uint32

// The roles. The specification calls them nochange, equal, master and slave.
const (
	RoleNoChange Role = 0 // ask only
	RoleEqual    Role = 1
	RoleMaster   Role = 2
	RoleSlave    Role = 3
)

// String returns the role's name.
func (r Role) String() string { return name8(r, "nochange", "equal", "master", "slave") }

type roleBody struct {
	Role       Role
	Generation uint64 // number of the mastership; a request with an older number is refused as stale
}

func (r *roleBody) appendTo(b []byte, t MsgType, xid uint32) ([]byte, error) {
	start := len(b)
	b = pad(put32(begin(b, t, xid), uint32(r.Role)), 4)
	return finish(put64(b, r.Generation), start, nil)
}

func (r *roleBody) decode(b []byte, t MsgType) error {
	p, err := body(b, t)
	if err != nil {
		return err
	}
	r.Role, r.Generation = Role(be.Uint32(p)), be.Uint64(p[8:])
	return nothingLeft(t.String(), p[16:])
}

func (r *roleBody) describe(t MsgType) string {
	return fmt.Sprintf("%v role=%v generation=%d", t, r.Role, r.Generation)
}

// RoleRequest asks for a role.
type RoleRequest struct {
	Role       Role
	Generation uint64 // number of the mastership; a request with an older number is refused as stale
}

// MsgType returns TypeRoleRequest.
func (*RoleRequest) MsgType() MsgType { return TypeRoleRequest }

// AppendTo appends the message to b.
func (m *RoleRequest) AppendTo(b []byte, xid uint32) ([]byte, error) {
	return (*roleBody)(m).appendTo(b, TypeRoleRequest, xid)
}

// Decode reads the message.
func (m *RoleRequest) Decode(b []byte) error { return (*roleBody)(m).decode(b, TypeRoleRequest) }

// String describes the message.
func (m *RoleRequest) String() string { return (*roleBody)(m).describe(TypeRoleRequest) }

// RoleReply contains the controller's role.
type RoleReply struct {
	Role       Role
	Generation uint64 // number of the current mastership
}

// MsgType returns TypeRoleReply.
func (*RoleReply) MsgType() MsgType { return TypeRoleReply }

// AppendTo appends the message to b.
func (m *RoleReply) AppendTo(b []byte, xid uint32) ([]byte, error) {
	return (*roleBody)(m).appendTo(b, TypeRoleReply, xid)
}

// Decode reads the message.
func (m *RoleReply) Decode(b []byte) error { return (*roleBody)(m).decode(b, TypeRoleReply) }

// String describes the message.
func (m *RoleReply) String() string { return (*roleBody)(m).describe(TypeRoleReply) }

// AsyncConfig determines which messages a switch sends on its own, as bits by reason: index 0
// while the controller is master or equal, index 1 while it is slave.
type AsyncConfig struct {
	PacketIn, PortStatus, FlowRemoved [2]uint32
}

func (c *AsyncConfig) appendTo(b []byte, t MsgType, xid uint32) ([]byte, error) {
	start := len(b)
	b = begin(b, t, xid)
	for _, pair := range [...][2]uint32{c.PacketIn, c.PortStatus, c.FlowRemoved} {
		b = put32(put32(b, pair[0]), pair[1])
	}
	return finish(b, start, nil)
}

func (c *AsyncConfig) decode(b []byte, t MsgType) error {
	p, err := body(b, t)
	if err != nil {
		return err
	}
	for i, pair := range [...]*[2]uint32{&c.PacketIn, &c.PortStatus, &c.FlowRemoved} {
		*pair = [2]uint32{be.Uint32(p[8*i:]), be.Uint32(p[8*i+4:])}
	}
	return nothingLeft(t.String(), p[24:])
}

func (c *AsyncConfig) describe(t MsgType) string {
	return fmt.Sprintf("%v master: packet_in=%#x port_status=%#x flow_removed=%#x slave: packet_in=%#x port_status=%#x flow_removed=%#x",
		t, c.PacketIn[0], c.PortStatus[0], c.FlowRemoved[0], c.PacketIn[1], c.PortStatus[1], c.FlowRemoved[1])
}

// SetAsync chooses which messages the switch sends unasked.
type SetAsync struct{ AsyncConfig }

// MsgType returns TypeSetAsync.
func (*SetAsync) MsgType() MsgType { return TypeSetAsync }

// AppendTo appends the message to b.
func (m *SetAsync) AppendTo(b []byte, xid uint32) ([]byte, error) {
	return m.appendTo(b, TypeSetAsync, xid)
}

// Decode reads the message.
func (m *SetAsync) Decode(b []byte) error { return m.decode(b, TypeSetAsync) }

// String describes the message.
func (m *SetAsync) String() string { return m.describe(TypeSetAsync) }

// GetAsyncReply answers a GetAsyncRequest.
type GetAsyncReply struct{ AsyncConfig }

// MsgType returns TypeGetAsyncReply.
func (*GetAsyncReply) MsgType() MsgType { return TypeGetAsyncReply }

// AppendTo appends the message to b.
func (m *GetAsyncReply) AppendTo(b []byte, xid uint32) ([]byte, error) {
	return m.appendTo(b, TypeGetAsyncReply, xid)
}

// Decode reads the message.
func (m *GetAsyncReply) Decode(b []byte) error { return m.decode(b, TypeGetAsyncReply) }

// String describes the message.
func (m *GetAsyncReply) String() string { return m.describe(TypeGetAsyncReply) }
