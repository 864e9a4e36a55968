package openflow

import "fmt"

// Capabilities of a switch.
const (
	CapFlowStats   uint32 = 1 << 0
	CapTableStats  uint32 = 1 << 1
	CapPortStats   uint32 = 1 << 2
	CapGroupStats  uint32 = 1 << 3
	CapIPReasm     uint32 = 1 << 5
	CapQueueStats  uint32 = 1 << 6
	CapPortBlocked uint32 = 1 << 8
)

var capabilityNames = []string{"flow_stats", "table_stats", "port_stats", "group_stats", "", "ip_reasm", "queue_stats", "", "port_blocked"}

// FeaturesReply describes a switch.
type FeaturesReply struct {
	DatapathID   DatapathID
	Buffers      uint32 // packets it can hold for the controller
	Tables       uint8
	AuxiliaryID  uint8 // 0: the main connection
	Capabilities uint32
}

// MsgType returns TypeFeaturesReply.
func (*FeaturesReply) MsgType() MsgType { return TypeFeaturesReply }

// AppendTo appends the message to b.
func (m *FeaturesReply) AppendTo(b []byte, xid uint32) ([]byte, error) {
	start := len(b)
	b = begin(b, TypeFeaturesReply, xid)
	b = put64(b, uint64(m.DatapathID))
	b = put32(b, m.Buffers)
	b = append(b, m.Tables, m.AuxiliaryID, 0, 0)
	b = put32(b, m.Capabilities)
	return finish(pad(b, 4), start, nil)
}

// Decode reads the message.
func (m *FeaturesReply) Decode(b []byte) error {
	p, err := body(b, TypeFeaturesReply)
	if err != nil {
		return err
	}
	m.DatapathID = DatapathID(be.Uint64(p))
	m.Buffers = be.Uint32(p[8:])
	m.Tables, m.AuxiliaryID = p[12], p[13]
	m.Capabilities = be.Uint32(p[16:])
	return nothingLeft("FEATURES_REPLY", p[24:])
}

// String describes the message.
func (m *FeaturesReply) String() string {
	return fmt.Sprintf("FEATURES_REPLY dpid=%v buffers=%d tables=%d auxiliary=%d capabilities=%s",
		m.DatapathID, m.Buffers, m.Tables, m.AuxiliaryID, bitNames(uint64(m.Capabilities), capabilityNames))
}

// Handling of IP fragments.
const (
	FragNormal     uint16 = 0
	FragDrop       uint16 = 1
	FragReassemble uint16 = 2
)

// Config is the part of a switch's configuration that OpenFlow itself carries.
type Config struct {
	Flags   uint16 // one of the Frag constants
	MissLen uint16 // bytes of a packet sent to the controller; MaxLenNoBuffer: all
}

func (c *Config) appendTo(b []byte, t MsgType, xid uint32) ([]byte, error) {
	start := len(b)
	b = begin(b, t, xid)
	return finish(put16(put16(b, c.Flags), c.MissLen), start, nil)
}

func (c *Config) decode(b []byte, t MsgType) error {
	p, err := body(b, t)
	if err != nil {
		return err
	}
	c.Flags, c.MissLen = be.Uint16(p), be.Uint16(p[2:])
	return nothingLeft(t.String(), p[4:])
}

func (c *Config) describe(t MsgType) string {
	return fmt.Sprintf("%v frag=%s miss_len=%d", t, name8(c.Flags, "normal", "drop", "reassemble"), c.MissLen)
}

// GetConfigReply answers a GetConfigRequest.
type GetConfigReply struct{ Config }

// MsgType returns TypeGetConfigReply.
func (*GetConfigReply) MsgType() MsgType { return TypeGetConfigReply }

// AppendTo appends the message to b.
func (m *GetConfigReply) AppendTo(b []byte, xid uint32) ([]byte, error) {
	return m.appendTo(b, m.MsgType(), xid)
}

// Decode reads the message.
func (m *GetConfigReply) Decode(b []byte) error { return m.decode(b, m.MsgType()) }

// String describes the message.
func (m *GetConfigReply) String() string { return m.describe(m.MsgType()) }

// SetConfig changes the configuration.
type SetConfig struct{ Config }

// MsgType returns TypeSetConfig.
func (*SetConfig) MsgType() MsgType { return TypeSetConfig }

// AppendTo appends the message to b.
func (m *SetConfig) AppendTo(b []byte, xid uint32) ([]byte, error) {
	return m.appendTo(b, m.MsgType(), xid)
}

// Decode reads the message.
func (m *SetConfig) Decode(b []byte) error { return m.decode(b, m.MsgType()) }

// String describes the message.
func (m *SetConfig) String() string { return m.describe(m.MsgType()) }

// TableMod changes the configuration of a table. In OpenFlow 1.3 no bit of it
// has a meaning any more.
type TableMod struct {
	Table  uint8
	Config uint32
}

// MsgType returns TypeTableMod.
func (*TableMod) MsgType() MsgType { return TypeTableMod }

// AppendTo appends the message to b.
func (m *TableMod) AppendTo(b []byte, xid uint32) ([]byte, error) {
	start := len(b)
	b = append(begin(b, TypeTableMod, xid), m.Table, 0, 0, 0)
	return finish(put32(b, m.Config), start, nil)
}

// Decode reads the message.
func (m *TableMod) Decode(b []byte) error {
	p, err := body(b, TypeTableMod)
	if err != nil {
		return err
	}
	m.Table, m.Config = p[0], be.Uint32(p[4:])
	return nothingLeft("TABLE_MOD", p[8:])
}

// String describes the message.
func (m *TableMod) String() string {
	return fmt.Sprintf("TABLE_MOD table=%d config=%#x", m.Table, m.Config)
}
