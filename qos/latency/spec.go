package latency

import (
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/match"
	"github.com/sluice-net/sluice/service"
)

// MaxFlows bounds the flows of one class.
const MaxFlows = 64

// LowestPriority is that of traffic without a class.
const LowestPriority = 7

// ClassSpec is a class as an operator asks for it. The names are those of the QoS
// dissertation's requests (section 4.3.1); numbers may be written as strings.
type ClassSpec struct {
	Name     string       `json:"name" yaml:"-" maxLength:"64" doc:"Name of the class: letters, digits, dots, dashes and underscores, a letter or digit first" example:"VoIP"`
	MinRate  match.Text   `json:"min_rate,omitempty" yaml:"min_rate" doc:"Rate, like 2Mbit or in bit/s, that the class has on every hop whatever else happens; default: the configured share of each link" example:"2000000"`
	MaxRate  match.Text   `json:"max_rate,omitempty" yaml:"max_rate" doc:"Rate, like 10Mbit or in bit/s, that it never exceeds; default: each link's own" example:"10000000"`
	Latency  match.Text   `json:"latency,omitempty" yaml:"latency" doc:"Latency, like 150ms or in ms, that the links of the path may have together; default: any" example:"150"`
	Priority match.Text   `json:"priority" yaml:"priority" doc:"0, the first, to 7, like traffic without a class" example:"2"`
	Flows    []match.Flow `json:"flows" yaml:"flows" minItems:"1" maxItems:"64" doc:"Descriptions of the class's packets; each names its destination"`
}

// Class is a specification that makes sense.
type Class struct {
	Spec ClassSpec
	Name string
	// MinRate and MaxRate are in bit/s, zero for the defaults of each port.
	MinRate, MaxRate uint64
	// Latency is zero if there is no requirement.
	Latency  time.Duration
	Priority uint8
	Flows    []Flow
}

// Flow is one description of a class.
type Flow struct {
	Matches []openflow.Match
	// Src is not valid if the description leaves the source open.
	Src, Dst End
	// DSCP is the one that the description names.
	DSCP *uint8
}

// matches are those of all flows.
func (c *Class) matches() []openflow.Match {
	var out []openflow.Match
	for _, f := range c.Flows {
		out = append(out, f.Matches...)
	}
	return out
}

// End is a host, by the address that a description names.
type End struct {
	IP  netip.Addr
	MAC openflow.MAC
	// VLAN belongs to a MAC address.
	VLAN uint16
}

// IsValid says whether it names a host.
func (e End) IsValid() bool { return e.IP.IsValid() || !e.MAC.IsZero() }

// String is the address.
func (e End) String() string {
	if e.IP.IsValid() {
		return e.IP.String()
	}
	return e.MAC.String()
}

var className = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Parse reads the specification, or says everything that is wrong with it.
func (c *ClassSpec) Parse() (Class, service.Faults) {
	p := &specParser{}
	out := Class{Spec: *c, Name: c.Name}
	if !className.MatchString(c.Name) {
		p.fail("name", c.Name, "1 to 64 letters, digits, dots, dashes and underscores, the first a letter or digit")
	}
	out.MinRate = p.rate("min_rate", c.MinRate)
	out.MaxRate = p.rate("max_rate", c.MaxRate)
	if out.MinRate > out.MaxRate && out.MaxRate > 0 {
		p.fail("min_rate", c.MinRate, fmt.Sprintf("no more than max_rate, %d", out.MaxRate))
	}
	out.Latency = p.latency(c.Latency)
	priority, err := strconv.ParseUint(string(c.Priority), 10, 8)
	if err != nil || priority > LowestPriority {
		p.fail("priority", c.Priority, "a number from 0, the first, to 7")
	}
	out.Priority = uint8(priority)
	if len(c.Flows) == 0 || len(c.Flows) > MaxFlows {
		p.fail("flows", len(c.Flows), fmt.Sprintf("1 to %d descriptions of flows", MaxFlows))
	}
	for i := range c.Flows {
		if i < MaxFlows {
			if slices.Contains(c.Flows[:i], c.Flows[i]) {
				p.fail(fmt.Sprintf("flows[%d]", i), c.Flows[i], "each flow once")
				continue
			}
			out.Flows = append(out.Flows, p.flow(fmt.Sprintf("flows[%d]", i), &c.Flows[i]))
		}
	}
	return out, p.faults
}

type specParser struct{ faults service.Faults }

func (p *specParser) fail(field string, value any, want string) {
	p.faults = append(p.faults, service.Fault{Field: field, Value: value, Want: want})
}

// leastRate is what Open vSwitch makes of any smaller one: 1500 bytes a second.
const leastRate = 12_000

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
	if err != nil || n < leastRate || n > 1e12 {
		p.fail(field, text, fmt.Sprintf("a rate like 2Mbit, or a whole number of bit/s, from %d to 1000000000000", leastRate))
	}
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
		p.fail("latency", text, "a time like 150ms, or a number of ms, from 0.001 to 60000")
		return 0
	}
	return time.Duration(ms * float64(time.Millisecond))
}

func (p *specParser) flow(where string, f *match.Flow) Flow {
	matches, faults := f.Parse()
	for _, x := range faults {
		field := where
		if x.Field != "" {
			field += "." + x.Field
		}
		p.fail(field, x.Value, x.Want)
	}
	if len(faults) > 0 {
		return Flow{}
	}
	out := Flow{Matches: matches}
	m := matches[0] // they differ in ports and ethertype only
	out.Src = endOf(m, openflow.FieldIPv4Src, openflow.FieldIPv6Src, openflow.FieldEthSrc)
	out.Dst = endOf(m, openflow.FieldIPv4Dst, openflow.FieldIPv6Dst, openflow.FieldEthDst)
	if !out.Dst.IsValid() {
		p.fail(where, "", "the destination: ipv4_dst, ipv6_dst or eth_dst of one host. Without it there is no path to prepare")
	}
	if f.InPort != "" && !out.Src.IsValid() {
		p.fail(where+".in_port", f.InPort, "the source beside it: ipv4_src, ipv6_src or eth_src of one host. Without it packets may enter at any switch, and the port's number means another port at each")
	}
	if o, ok := m.Get(openflow.FieldIPDSCP); ok {
		dscp := uint8(o.Uint())
		out.DSCP = &dscp
	}
	return out
}

// endOf is the one host that the first of the fields means which is there.
func endOf(m openflow.Match, fields ...openflow.Field) End {
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
