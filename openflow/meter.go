package openflow

import (
	"fmt"
	"strings"
)

// Commands of a meter modification.
const (
	MeterAdd    uint16 = 0
	MeterModify uint16 = 1
	MeterDelete uint16 = 2
)

// Flags of a meter.
const (
	MeterFlagKbps  uint16 = 1 << 0 // rates are in kbit/s
	MeterFlagPktps uint16 = 1 << 1 // rates are in packets/s
	MeterFlagBurst uint16 = 1 << 2 // bands have a burst size
	MeterFlagStats uint16 = 1 << 3 // collect statistics
)

var meterFlagNames = []string{"kbps", "pktps", "burst", "stats"}

// BandType is the effect of a meter band on packets above its rate.
type BandType uint16

// The band types.
const (
	BandDrop         BandType = 1
	BandDSCPRemark   BandType = 2
	BandExperimenter BandType = 0xffff
)

// String returns the type's name.
func (t BandType) String() string {
	switch t {
	case BandDrop:
		return "drop"
	case BandDSCPRemark:
		return "dscp_remark"
	case BandExperimenter:
		return "experimenter"
	}
	return fmt.Sprintf("unknown(%d)", uint16(t))
}

// MeterBand acts on packets above a rate.
type MeterBand struct {
	Type         BandType
	Rate         uint32
	Burst        uint32
	PrecLevel    uint8  // dscp_remark: by how much to raise the drop precedence
	Experimenter uint32 // experimenter
}

func appendBands(b []byte, bands []MeterBand) []byte {
	for i := range bands {
		k := &bands[i]
		b = put16(b, uint16(k.Type))
		b = put16(b, 16)
		b = put32(b, k.Rate)
		b = put32(b, k.Burst)
		switch k.Type {
		case BandDSCPRemark:
			b = append(b, k.PrecLevel, 0, 0, 0)
		case BandExperimenter:
			b = put32(b, k.Experimenter)
		default:
			b = pad(b, 4)
		}
	}
	return b
}

func parseBands(b []byte) ([]MeterBand, error) {
	var bands []MeterBand
	it := iterate(b, &bandShape)
	for it.step() {
		e := it.elem
		if len(e) != 16 {
			return nil, badLength("meter band", it.at, "%d, want 16", len(e))
		}
		k := MeterBand{Type: BandType(be.Uint16(e)), Rate: be.Uint32(e[4:]), Burst: be.Uint32(e[8:])}
		switch k.Type {
		case BandDrop:
		case BandDSCPRemark:
			k.PrecLevel = e[12]
		case BandExperimenter:
			k.Experimenter = be.Uint32(e[12:])
		default:
			return nil, &DecodeError{What: "meter band", Offset: it.at, Err: ErrType, Detail: k.Type.String()}
		}
		bands = append(bands, k)
	}
	return bands, it.err
}

func bandList(bands []MeterBand) string {
	var s strings.Builder
	for _, k := range bands {
		fmt.Fprintf(&s, " band={%v rate=%d burst=%d", k.Type, k.Rate, k.Burst)
		switch k.Type {
		case BandDSCPRemark:
			fmt.Fprintf(&s, " prec_level=%d", k.PrecLevel)
		case BandExperimenter:
			fmt.Fprintf(&s, " experimenter=%#x", k.Experimenter)
		}
		s.WriteByte('}')
	}
	return s.String()
}

// MeterMod adds, changes or deletes a meter.
type MeterMod struct {
	Command uint16
	Flags   uint16
	Meter   uint32
	Bands   []MeterBand
}

// MsgType returns TypeMeterMod.
func (*MeterMod) MsgType() MsgType { return TypeMeterMod }

// AppendTo appends the message to b.
func (m *MeterMod) AppendTo(b []byte, xid uint32) ([]byte, error) {
	start := len(b)
	b = begin(b, TypeMeterMod, xid)
	b = put16(put16(b, m.Command), m.Flags)
	b = put32(b, m.Meter)
	return finish(appendBands(b, m.Bands), start, nil)
}

// Decode reads the message.
func (m *MeterMod) Decode(b []byte) error {
	p, err := body(b, TypeMeterMod)
	if err != nil {
		return err
	}
	m.Command, m.Flags, m.Meter = be.Uint16(p), be.Uint16(p[2:]), be.Uint32(p[4:])
	m.Bands, err = parseBands(p[8:])
	return err
}

// String describes the message.
func (m *MeterMod) String() string {
	return fmt.Sprintf("METER_MOD %s meter=%s flags=%s%s", name8(m.Command, "add", "modify", "delete"),
		meterName(m.Meter), bitNames(uint64(m.Flags), meterFlagNames), bandList(m.Bands))
}

func meterName(id uint32) string {
	switch id {
	case MeterSlowPath:
		return "slowpath"
	case MeterController:
		return "controller"
	case MeterAll:
		return "all"
	}
	return fmt.Sprint(id)
}
