package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-net/sluice/internal/strictyaml"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/lab/delayline"
)

// Load reads a topology file. If values cannot be decoded, the error is a strictyaml.Problems that
// reports all of them at once, with their lines. If only the topology is not valid, the error
// reports the first problem.
func Load(file string) (Topology, error) {
	b, err := strictyaml.ReadFile(file)
	if err != nil {
		return Topology{}, err
	}
	return Parse(file, b)
}

// Parse reads a topology in YAML and fills in defaults; name is the file's name in errors.
func Parse(name string, b []byte) (Topology, error) {
	root, problems := strictyaml.Parse(name, b)
	if root == nil {
		return Topology{}, problems
	}
	if len(root.Content) == 0 {
		return Topology{}, strictyaml.Problems{{Source: name, Wrong: "the file is empty"}}
	}
	d := &decoder{file: name, problems: problems, lines: map[string]int{}}
	t := decodeTopology(value{d: d, node: root})
	if len(d.problems) > 0 {
		return Topology{}, d.problems.Sort()
	}
	t = t.withDefaults()
	var p Problem
	if err := t.Validate(); errors.As(err, &p) {
		return Topology{}, strictyaml.Problems{{Source: name, Line: d.lineOf(p.Field), Key: p.Field, Wrong: p.Text}}
	}
	return t, nil
}

func decodeTopology(v value) Topology {
	var t Topology
	v.fields(map[string]func(value){
		"name": func(v value) { parseScalar(v, &t.Name, asString) },
		"controllers": func(v value) {
			v.each(func(name string, v value) { t.Controllers = append(t.Controllers, decodeController(name, v)) })
		},
		"switches": func(v value) {
			v.each(func(name string, v value) { t.Switches = append(t.Switches, decodeSwitch(name, v)) })
		},
		"hosts": func(v value) {
			v.each(func(name string, v value) { t.Hosts = append(t.Hosts, decodeHost(name, v)) })
		},
		"links": func(v value) {
			v.list(func(_ int, v value) { t.Links = append(t.Links, decodeLink(v)) })
		},
	})
	return t
}

func decodeController(name string, v value) Controller {
	c := Controller{Name: name}
	if !v.isNull() {
		v.fields(map[string]func(value){"port": func(v value) { parseScalar(v, &c.Port, asInt) }})
	}
	return c
}

func decodeSwitch(name string, v value) Switch {
	s := Switch{Name: name}
	if v.isNull() {
		return s
	}
	v.fields(map[string]func(value){
		"dpid":         func(v value) { parseScalar(v, &s.DPID, parseDPID) },
		"datapath":     func(v value) { parseScalar(v, &s.Datapath, asString) },
		"protocols":    func(v value) { parseList(v, &s.Protocols, asString) },
		"capabilities": func(v value) { parseList(v, &s.Capabilities, asString) },
		"controllers":  func(v value) { parseList(v, &s.Controllers, asString) },
		"flows":        func(v value) { parseList(v, &s.Flows, asString) },
		"offload":      func(v value) { parseScalar(v, &s.Offload, asBool) },
		"tables":       func(v value) { parseScalar(v, &s.Tables, asInt) },

		"control_delay": func(v value) { parseScalar(v, &s.ControlDelay, units.ParseTime) },
	})
	return s
}

// parseDPID parses a datapath ID: 16 hexadecimal digits, or fewer with 0x.
func parseDPID(s string) (uint64, error) {
	digits, prefixed := strings.CutPrefix(s, "0x")
	n, err := strconv.ParseUint(digits, 16, 64)
	if err != nil || n == 0 || (!prefixed && len(digits) != 16) {
		return 0, fmt.Errorf("%q is not a datapath id: write 16 hexadecimal digits, or 0x and fewer, not 0", s)
	}
	return n, nil
}

func decodeHost(name string, v value) Host {
	h := Host{Name: name}
	if v.isNull() {
		return h
	}
	v.fields(map[string]func(value){
		"addresses":  func(v value) { parseList(v, &h.Addresses, parseAddress) },
		"routes":     func(v value) { v.list(func(_ int, v value) { h.Routes = append(h.Routes, decodeRoute(v)) }) },
		"mtu":        func(v value) { parseScalar(v, &h.MTU, asInt) },
		"congestion": func(v value) { parseScalar(v, &h.Congestion, asString) },
		"agent":      func(v value) { parseScalar(v, &h.Agent, asBool) },
		"router":     func(v value) { parseScalar(v, &h.Router, asBool) },
		"dynamic":    func(v value) { parseScalar(v, &h.Dynamic, asBool) },
		"sysctls": func(v value) {
			h.Sysctls = map[string]string{}
			v.each(func(name string, v value) {
				parseScalar(v, new(string), func(s string) (string, error) { h.Sysctls[name] = s; return s, nil })
			})
		},
	})
	return h
}

func parseAddress(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q is not an address with a prefix length, such as 10.0.0.1/24 or fd00::1/64", s)
	}
	return p, nil
}

func decodeRoute(v value) Route {
	var r Route
	var to string
	v.fields(map[string]func(value){
		"to": func(v value) { parseScalar(v, &to, asString) },
		"via": func(v value) {
			parseScalar(v, &r.Via, func(s string) (netip.Addr, error) {
				a, err := netip.ParseAddr(s)
				if err != nil || a.Zone() != "" {
					return a, fmt.Errorf("%q is not an IP address", s)
				}
				return a, nil
			})
		},
	})
	switch {
	case !r.Via.IsValid():
		v.fail("a route needs a gateway: via: ADDRESS")
	case to == "default" && r.Via.Is4():
		r.To = netip.MustParsePrefix("0.0.0.0/0")
	case to == "default":
		r.To = netip.MustParsePrefix("::/0")
	default:
		p, err := netip.ParsePrefix(to)
		if err != nil {
			v.fail("to: %q is not a prefix such as 10.1.0.0/16, nor default", to)
		}
		r.To = p
	}
	return r
}

func decodeLink(v value) Link {
	var l Link
	// The properties are read first, wherever they stand: directions override them.
	var both delayline.Params
	var overrides []func()
	known := paramFields(&both)
	known["name"] = func(v value) { parseScalar(v, &l.Name, asString) }
	known["mtu"] = func(v value) { parseScalar(v, &l.MTU, asInt) }
	known["shaped"] = func(v value) { parseScalar(v, &l.Shaped, asBool) }
	known["down"] = func(v value) { parseScalar(v, &l.Down, asBool) }
	known["ends"] = func(v value) { decodeEnds(v, &l) }
	known["a_to_b"] = func(v value) { overrides = append(overrides, func() { v.fields(paramFields(&l.AtoB)) }) }
	known["b_to_a"] = func(v value) { overrides = append(overrides, func() { v.fields(paramFields(&l.BtoA)) }) }
	v.fields(known)
	l.AtoB, l.BtoA = both, both
	for _, override := range overrides {
		override()
	}
	if l.A.Node == "" || l.B.Node == "" {
		v.fail("a link needs two ends: ends: [NODE, NODE]")
	}
	v.remember(l)
	return l
}

// remember records the link's line under the name that later errors use.
func (v value) remember(l Link) {
	name := l.Name
	if name == "" {
		name = l.A.Node + "-" + l.B.Node
	}
	v.d.lines["links."+name] = v.node.Line
}

func paramFields(p *delayline.Params) map[string]func(value) {
	return map[string]func(value){
		"rate":   func(v value) { parseScalar(v, &p.Rate, units.ParseRate) },
		"delay":  func(v value) { parseScalar(v, &p.Delay, units.ParseTime) },
		"jitter": func(v value) { parseScalar(v, &p.Jitter, units.ParseTime) },
		"loss":   func(v value) { parseScalar(v, &p.Loss, units.ParseShare) },
		"queue":  func(v value) { parseScalar(v, &p.Queue, units.ParseSize) },
	}
}

func decodeEnds(v value, l *Link) {
	n := 0
	v.list(func(i int, v value) {
		n++
		var e End
		if v.node.Kind == yaml.MappingNode {
			v.fields(map[string]func(value){
				"node":      func(v value) { parseScalar(v, &e.Node, asString) },
				"port":      func(v value) { parseScalar(v, &e.Port, asInt) },
				"addresses": func(v value) { parseList(v, &e.Addresses, parseAddress) },
			})
		} else {
			parseScalar(v, &e.Node, asString)
		}
		switch i {
		case 0:
			l.A = e
		case 1:
			l.B = e
		}
	})
	if n > 2 {
		v.fail("a link has two ends, not %d", n)
	}
}
