package rule

import "github.com/sluice-net/sluice/openflow"

// AnyVLAN in a Flow leaves the VLAN out of the match.
const AnyVLAN uint16 = 0xffff

// Flow is the match of a rule of default forwarding in compact form: packets
// from Src to Dst that come in by InPort. VLAN is the VLAN identifier, zero for
// packets without a tag, or AnyVLAN.
type Flow struct {
	InPort   uint32
	Src, Dst openflow.MAC
	VLAN     uint16
}

// Match returns the flow as an OpenFlow match.
func (f Flow) Match() openflow.Match {
	oxms := []openflow.OXM{openflow.InPort(f.InPort), openflow.EthDst(f.Dst), openflow.EthSrc(f.Src)}
	switch f.VLAN {
	case AnyVLAN:
	case 0:
		oxms = append(oxms, openflow.NoVLAN())
	default:
		oxms = append(oxms, openflow.VLANVID(f.VLAN))
	}
	return openflow.MustMatch(oxms...)
}

// FlowOf returns the flow of a match, and false if the match has any other form.
func FlowOf(m openflow.Match) (f Flow, ok bool) {
	f.VLAN = AnyVLAN
	n := 0
	for o := range m.Fields() {
		if o.Masked {
			return Flow{}, false
		}
		switch o.Field {
		case openflow.FieldInPort:
			f.InPort = uint32(o.Uint())
			n++
		case openflow.FieldEthSrc:
			copy(f.Src[:], o.Value[:])
			n++
		case openflow.FieldEthDst:
			copy(f.Dst[:], o.Value[:])
			n++
		case openflow.FieldVLANVID:
			f.VLAN = uint16(o.Uint()) & 0xfff
		default:
			return Flow{}, false
		}
	}
	return f, n == 3
}
