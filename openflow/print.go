package openflow

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// name8 returns the name that belongs to a small number, or the number.
func name8[T ~uint8 | ~uint16 | ~uint32](v T, names ...string) string {
	if uint64(v) < uint64(len(names)) {
		return names[v]
	}
	return fmt.Sprintf("unknown(%d)", v)
}

// bitNames returns the names of the bits that are set, and the bits without a name in hex.
func bitNames(v uint64, names []string) string {
	var set []string
	for i, name := range names {
		if v&(1<<i) != 0 && name != "" {
			set = append(set, name)
			v &^= 1 << i
		}
	}
	if v != 0 {
		set = append(set, fmt.Sprintf("%#x", v))
	}
	if len(set) == 0 {
		return "none"
	}
	return strings.Join(set, "|")
}

// Duration is a time span as OpenFlow counts it.
type Duration struct{ Sec, Nsec uint32 }

// Duration converts to the Go type, also if Nsec is more than a second.
func (d Duration) Duration() time.Duration {
	return time.Duration(d.Sec)*time.Second + time.Duration(d.Nsec)
}

// String returns the span as Go prints it, or "?" when all bits are set: the
// switch does not know.
func (d Duration) String() string {
	if d == (Duration{1<<32 - 1, 1<<32 - 1}) {
		return "?"
	}
	return d.Duration().String()
}

func (d Duration) append(b []byte) []byte { return put32(put32(b, d.Sec), d.Nsec) }

func parseDuration(b []byte) Duration { return Duration{be.Uint32(b), be.Uint32(b[4:])} }

// nothingLeft returns an error if bytes remain after a message's content.
func nothingLeft(what string, rest []byte) error {
	if len(rest) != 0 {
		return badLength(what, 0, "%s after the end", plural(len(rest), "byte"))
	}
	return nil
}

// String returns the fields in the form that ovs-ofctl accepts, where it has
// one: "in_port=1,eth_type=0x0800,ip_dst=10.0.0.0/8".
func (m Match) String() string { return m.oxms().String() }

// String returns the fields as Match.String does.
func (b OXMs) String() string {
	var s strings.Builder
	it := iterate(b, &oxmShape)
	for it.step() {
		if s.Len() > 0 {
			s.WriteByte(',')
		}
		var o OXM
		known, err := o.decode(it.elem, it.at)
		switch {
		case err != nil:
			fmt.Fprintf(&s, "malformed(%x)", it.elem)
		case known:
			s.WriteString(o.String())
		default:
			fmt.Fprintf(&s, "oxm(%x)=%x", it.elem[:4], it.elem[4:])
		}
	}
	if it.err != nil {
		fmt.Fprintf(&s, " malformed(%v)", it.err)
	}
	return s.String()
}

// String returns "name=value" or "name=value/mask".
func (o OXM) String() string {
	if !o.Field.Valid() {
		return "invalid"
	}
	info := &fields[o.Field]
	n := int(info.size)
	value := formatValue(info, o.Value[:n])
	if !o.Masked {
		if info.format == asVLAN {
			value = vlanString(o.Uint())
		}
		if info.format == asTCPFlags {
			value = tcpFlagString(o.Uint())
		}
		return info.name + "=" + value
	}
	if bits, ok := prefixLen(o.Mask[:n]); ok && (info.format == asIPv4 || info.format == asIPv6) {
		return fmt.Sprintf("%s=%s/%d", info.name, value, bits)
	}
	if info.format == asTCPFlags {
		return info.name + "=" + tcpFlagChange(o.Uint(), o.MaskUint())
	}
	return info.name + "=" + value + "/" + formatMask(info, o.Mask[:n])
}

func formatValue(info *fieldInfo, v []byte) string {
	switch info.format {
	case asMAC:
		return MAC(v).String()
	case asIPv4, asIPv6:
		a, _ := netip.AddrFromSlice(v)
		return a.String()
	case asPort:
		return PortName(uint32(getUint(v)))
	case asDecimal:
		return strconv.FormatUint(getUint(v), 10)
	}
	if info.size == 2 {
		return fmt.Sprintf("0x%04x", getUint(v))
	}
	return fmt.Sprintf("%#x", getUint(v))
}

func formatMask(info *fieldInfo, v []byte) string {
	if info.format == asDecimal {
		return fmt.Sprintf("%#x", getUint(v))
	}
	return formatValue(info, v)
}

func vlanString(v uint64) string {
	if v&vlanPresent == 0 {
		return "none"
	}
	return strconv.FormatUint(v&^vlanPresent, 10)
}

var tcpFlagNames = []string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"}

func tcpFlagString(v uint64) string {
	if v == 0 {
		return "0"
	}
	return bitNames(v, tcpFlagNames)
}

// tcpFlagChange lists the flags that must be set (+) and must not be (-).
func tcpFlagChange(value, mask uint64) string {
	var s strings.Builder
	for i, name := range tcpFlagNames {
		if mask&(1<<i) == 0 {
			continue
		}
		sign := "-"
		if value&(1<<i) != 0 {
			sign = "+"
		}
		s.WriteString(sign + name)
		mask &^= 1 << i
	}
	if mask != 0 {
		return fmt.Sprintf("%#x/%#x", value, mask)
	}
	return s.String()
}

// prefixLen returns the number of leading ones of the mask. It returns false if a one follows a
// zero.
func prefixLen(mask []byte) (int, bool) {
	ones := 0
	for i := range len(mask) * 8 {
		if mask[i/8]&(0x80>>(i%8)) == 0 {
			continue
		}
		if ones != i {
			return 0, false
		}
		ones++
	}
	return ones, true
}

// String returns the action in the manner of ovs-ofctl.
func (a Action) String() string {
	info, ok := a.Type.info()
	if !ok {
		return a.Type.String()
	}
	switch info.layout {
	case layoutNone:
		return info.name
	case layoutOutput:
		if a.Arg == PortController {
			return fmt.Sprintf("CONTROLLER:%d", a.MaxLen)
		}
		return "output:" + PortName(a.Arg)
	case layoutField:
		o := strings.SplitN(a.OXM.String(), "=", 2)
		return fmt.Sprintf("set_field:%s->%s", o[len(o)-1], a.OXM.Field)
	case layoutRaw:
		return fmt.Sprintf("experimenter(%#x,%x)", a.Arg, a.Data)
	}
	if info.hex {
		return fmt.Sprintf("%s:0x%04x", info.name, a.Arg)
	}
	return fmt.Sprintf("%s:%d", info.name, a.Arg)
}

func actionList(actions []Action) string {
	if len(actions) == 0 {
		return "drop"
	}
	var s strings.Builder
	for i, a := range actions {
		if i > 0 {
			s.WriteByte(',')
		}
		s.WriteString(a.String())
	}
	return s.String()
}

// String returns the instruction in the manner of ovs-ofctl.
func (in Instruction) String() string {
	switch in.Type {
	case InstructionGotoTable:
		return fmt.Sprintf("goto_table:%d", in.Table)
	case InstructionWriteMetadata:
		return fmt.Sprintf("write_metadata:%#x/%#x", in.Metadata, in.Mask)
	case InstructionWriteActions, InstructionApplyActions:
		return fmt.Sprintf("%v(%s)", in.Type, actionList(in.Actions))
	case InstructionMeter:
		return fmt.Sprintf("meter:%d", in.Meter)
	case InstructionExperimenter:
		return fmt.Sprintf("experimenter(%#x,%x)", in.Experimenter, in.Data)
	}
	return in.Type.String()
}

func instructionList(ins []Instruction) string {
	if len(ins) == 0 {
		return "drop"
	}
	var s strings.Builder
	for i := range ins {
		if i > 0 {
			s.WriteByte(' ')
		}
		s.WriteString(ins[i].String())
	}
	return s.String()
}
