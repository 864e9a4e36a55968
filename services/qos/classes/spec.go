package classes

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/match"
)

// MaxFlows bounds the flows of one class.
const MaxFlows = 64

// LowestPriority is the priority of traffic without a class.
const LowestPriority = 7

// ClassSpec is a class as an operator requests it. The names are those of the requests in the QoS
// dissertation (section 4.3.1). Numbers may be written as strings.
type ClassSpec struct {
	Name     string       `json:"name" yaml:"-" maxLength:"64" doc:"Name of the class: letters, digits, dots, dashes and underscores, a letter or digit first" example:"VoIP"`
	MinRate  match.Text   `json:"min_rate,omitempty" yaml:"min_rate" doc:"Rate, like 2Mbit or in bit/s, that the class has on every hop whatever else happens; default: the configured share of each link" example:"2000000"`
	MaxRate  match.Text   `json:"max_rate,omitempty" yaml:"max_rate" doc:"Rate, like 10Mbit or in bit/s, that it never exceeds; default: each link's own" example:"10000000"`
	Latency  match.Text   `json:"latency,omitempty" yaml:"latency" doc:"Latency, like 150ms or in ms, that the links of the path may have together; default: any" example:"150"`
	Priority match.Text   `json:"priority" yaml:"priority" doc:"0, the first, to 7, like traffic without a class" example:"2"`
	Flows    []match.Flow `json:"flows" yaml:"flows" minItems:"1" maxItems:"64" doc:"Descriptions of the class's packets; each names its destination"`
}

// Class is a class whose specification has been checked.
type Class struct {
	Spec ClassSpec
	Name string
	// MinRate and MaxRate are in bit/s. Zero means the default of each port.
	MinRate, MaxRate uint64
	// Latency is zero if there is no requirement.
	Latency  time.Duration
	Priority uint8
	Flows    []Flow
}

// MarshalJSON returns the JSON of the specification.
func (c *Class) MarshalJSON() ([]byte, error) { return json.Marshal(c.Spec) }

// UnmarshalJSON reads a specification and checks it.
func (c *Class) UnmarshalJSON(b []byte) error {
	var spec ClassSpec
	if err := json.Unmarshal(b, &spec); err != nil {
		return err
	}
	checked, faults := spec.Parse()
	*c = checked
	return faults.Err()
}

// Flow is one flow of a class, as its specification describes it.
type Flow struct {
	Matches []openflow.Match
	// Src is not valid if the description leaves the source open.
	Src, Dst End
	// DSCP is the DSCP that the description names; nil if it names none.
	DSCP *uint8
}

// dscp returns the DSCP of the flow's packets.
func (f *Flow) dscp() uint8 {
	if f.DSCP == nil {
		return 0
	}
	return *f.DSCP
}

// matches returns the matches of all flows.
func (c *Class) matches() []openflow.Match {
	var out []openflow.Match
	for _, f := range c.Flows {
		out = append(out, f.Matches...)
	}
	return out
}

// End is a host, identified by the address that a description names.
type End struct {
	IP  netip.Addr
	MAC openflow.MAC
	// VLAN is the VLAN in which MAC is unique; unused with an IP address.
	VLAN uint16
}

// IsValid reports whether e names a host.
func (e End) IsValid() bool { return e.IP.IsValid() || !e.MAC.IsZero() }

// String returns the address.
func (e End) String() string {
	if e.IP.IsValid() {
		return e.IP.String()
	}
	return e.MAC.String()
}

var className = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Parse returns the class, or all faults of the specification.
func (c *ClassSpec) Parse() (Class, kit.Faults) {
	var p specParser
	out := Class{Spec: *c, Name: c.Name}
	p.Check(className.MatchString(c.Name), "name", c.Name, "1 to 64 letters, digits, dots, dashes and underscores, the first a letter or digit")
	out.MinRate = p.rate("min_rate", c.MinRate)
	out.MaxRate = p.rate("max_rate", c.MaxRate)
	p.Check(out.MinRate <= out.MaxRate || out.MaxRate == 0, "min_rate", c.MinRate, "no more than max_rate, %d", out.MaxRate)
	out.Latency = p.latency(c.Latency)
	priority, err := strconv.ParseUint(string(c.Priority), 10, 8)
	p.Check(err == nil && priority <= LowestPriority, "priority", c.Priority, "a number from 0, the first, to 7")
	out.Priority = uint8(priority)
	p.Check(len(c.Flows) > 0 && len(c.Flows) <= MaxFlows, "flows", len(c.Flows), "1 to %d descriptions of flows", MaxFlows)
	for i, f := range c.Flows[:min(len(c.Flows), MaxFlows)] {
		where := fmt.Sprintf("flows[%d]", i)
		if slices.Contains(c.Flows[:i], f) {
			p.Add(where, f, "each flow once")
			continue
		}
		out.Flows = append(out.Flows, p.flow(where, &f))
	}
	return out, p.Faults
}

// specParser collects the faults of a specification.
type specParser struct{ kit.Faults }

// minQueueRate is the rate to which Open vSwitch raises any smaller one: 1500 bytes a
// second.
const minQueueRate = 12_000

func (p *specParser) rate(field string, text match.Text) uint64 {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		var rate float64
		rate, err = units.ParseRate(string(text))
		n = uint64(min(rate, 2e12))
	}
	p.Check(err == nil && n >= minQueueRate && n <= 1e12, field, text, "a rate like 2Mbit, or a whole number of bit/s, from %d to 1000000000000", minQueueRate)
	return n
}

func (p *specParser) latency(text match.Text) time.Duration {
	if text == "" {
		return 0
	}
	if d, err := units.ParseTime(string(text)); err == nil {
		text = match.Text(strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', -1, 64))
	}
	ms, err := strconv.ParseFloat(string(text), 64)
	if err != nil || math.IsNaN(ms) || ms < 0.001 || ms > 60_000 {
		p.Add("latency", text, "a time like 150ms, or a number of ms, from 0.001 to 60000")
		return 0
	}
	return time.Duration(ms * float64(time.Millisecond))
}

func (p *specParser) flow(where string, f *match.Flow) Flow {
	matches, faults := f.Parse()
	if len(faults) > 0 {
		p.Faults = append(p.Faults, faults.WithPrefix(where)...)
		return Flow{}
	}
	out := Flow{Matches: matches}
	m := matches[0] // the matches differ in ports and ethertype only
	out.Src = hostOf(m, openflow.FieldIPv4Src, openflow.FieldIPv6Src, openflow.FieldEthSrc)
	out.Dst = hostOf(m, openflow.FieldIPv4Dst, openflow.FieldIPv6Dst, openflow.FieldEthDst)
	p.Check(out.Dst.IsValid(), where, "", "the destination: ipv4_dst, ipv6_dst or eth_dst of one host. Without it there is no path to prepare")
	p.Check(f.InPort == "" || out.Src.IsValid(), where+".in_port", f.InPort, "the source beside it: ipv4_src, ipv6_src or eth_src of one host. Without it packets may enter at any switch, and the port's number means another port at each")
	if o, ok := m.Get(openflow.FieldIPDSCP); ok {
		dscp := uint8(o.Uint())
		out.DSCP = &dscp
	}
	return out
}

// hostOf returns the host that is named by the first of the fields that m matches exactly and that
// holds a unicast address.
func hostOf(m openflow.Match, fields ...openflow.Field) End {
	for _, f := range fields {
		o, ok := m.Get(f)
		switch {
		case !ok || o.Masked:
			continue
		case f == openflow.FieldEthSrc || f == openflow.FieldEthDst:
			if o.MAC().IsMulticast() {
				continue
			}
			vlan, _ := m.Get(openflow.FieldVLANVID)
			return End{MAC: o.MAC(), VLAN: uint16(vlan.Uint()) & 0xfff}
		case !o.Addr().IsMulticast():
			return End{IP: o.Addr()}
		}
	}
	return End{}
}

// ownDSCP returns the DSCP that a class's packets have before they are marked. A userspace datapath
// has to know it, so all flows of the class must have the same one.
func ownDSCP(c *Class) (uint8, error) {
	own := c.Flows[0].dscp()
	for i, f := range c.Flows {
		if dscp := f.dscp(); dscp != own {
			return 0, &Refusal{fmt.Sprintf("flows[%d].ip_dscp", i), dscp, fmt.Sprintf("%d like the flows before it: on userspace datapaths all flows of a class have one DSCP; make two classes", own)}
		}
	}
	return own, nil
}
