package lab

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/lab/delayline"
)

// YAML returns the topology as a file that Parse reads back as the same topology.
func (t Topology) YAML() ([]byte, error) {
	root := newMap()
	root.add("name", scalar(t.Name))
	if len(t.Controllers) > 0 {
		m := newMap()
		for _, c := range t.Controllers {
			m.add(c.Name, controllerNode(c))
		}
		root.add("controllers", m.node)
	}
	if len(t.Switches) > 0 {
		m := newMap()
		for _, s := range t.Switches {
			m.add(s.Name, switchNode(s))
		}
		root.add("switches", m.node)
	}
	if len(t.Hosts) > 0 {
		m := newMap()
		for _, h := range t.Hosts {
			m.add(h.Name, hostNode(h))
		}
		root.add("hosts", m.node)
	}
	if len(t.Links) > 0 {
		links := &yaml.Node{Kind: yaml.SequenceNode}
		for _, l := range t.Links {
			links.Content = append(links.Content, linkNode(l))
		}
		root.add("links", links)
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(root.node); err != nil {
		return nil, fmt.Errorf("topology %s: %w", t.Name, err)
	}
	return b.Bytes(), enc.Close()
}

// mapping builds a YAML mapping whose keys keep the order in which they are added.
type mapping struct{ node *yaml.Node }

func newMap() mapping { return mapping{&yaml.Node{Kind: yaml.MappingNode}} }

// flowMap returns a mapping that is written on one line.
func flowMap() mapping { return mapping{&yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}} }

func (m mapping) add(key string, value *yaml.Node) {
	m.node.Content = append(m.node.Content, scalar(key), value)
}

// text adds a scalar unless it is empty.
func (m mapping) text(key, value string) {
	if value != "" {
		m.add(key, scalar(value))
	}
}

func (m mapping) number(key string, value int) {
	if value != 0 {
		m.text(key, strconv.Itoa(value))
	}
}

func (m mapping) flag(key string, value bool) {
	if value {
		m.text(key, "true")
	}
}

func (m mapping) texts(key string, values []string) {
	if len(values) == 0 {
		return
	}
	list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, v := range values {
		list.Content = append(list.Content, scalar(v))
	}
	m.add(key, list)
}

// scalar returns a node that reads back as the same text. The reader takes scalars as they are
// written, so only what YAML would misread needs quotes, which the encoder adds.
func scalar(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: s}
	if s == "" || s == "~" || s == "null" || s == "Null" || s == "NULL" {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

func controllerNode(c Controller) *yaml.Node {
	m := flowMap()
	m.number("port", c.Port)
	return m.node
}

func switchNode(s Switch) *yaml.Node {
	m := flowMap()
	if s.DPID != 0 {
		m.text("dpid", fmt.Sprintf("%016x", s.DPID))
	}
	m.text("datapath", s.Datapath)
	m.texts("protocols", s.Protocols)
	m.texts("capabilities", s.Capabilities)
	m.texts("controllers", s.Controllers)
	m.texts("flows", s.Flows)
	m.flag("offload", s.Offload)
	m.number("tables", s.Tables)
	if s.ControlDelay != 0 {
		m.text("control_delay", s.ControlDelay.String())
	}
	return m.node
}

func hostNode(h Host) *yaml.Node {
	m := flowMap()
	m.texts("addresses", prefixes(h.Addresses))
	if len(h.Routes) > 0 {
		list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, r := range h.Routes {
			route := flowMap()
			route.text("to", r.To.String())
			route.text("via", r.Via.String())
			list.Content = append(list.Content, route.node)
		}
		m.add("routes", list)
	}
	m.number("mtu", h.MTU)
	m.text("congestion", h.Congestion)
	if len(h.Sysctls) > 0 {
		all := flowMap()
		names := make([]string, 0, len(h.Sysctls))
		for name := range h.Sysctls {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			all.add(name, scalar(h.Sysctls[name]))
		}
		m.add("sysctls", all.node)
	}
	m.flag("agent", h.Agent)
	m.flag("router", h.Router)
	m.flag("dynamic", h.Dynamic)
	return m.node
}

func prefixes(all []netip.Prefix) []string {
	var texts []string
	for _, a := range all {
		texts = append(texts, a.String())
	}
	return texts
}

func linkNode(l Link) *yaml.Node {
	m := flowMap()
	m.text("name", l.Name)
	m.add("ends", &yaml.Node{
		Kind: yaml.SequenceNode, Style: yaml.FlowStyle,
		Content: []*yaml.Node{endNode(l.A), endNode(l.B)},
	})
	m.number("mtu", l.MTU)
	m.flag("shaped", l.Shaped)
	m.flag("down", l.Down)
	if l.AtoB == l.BtoA {
		m.params(l.AtoB)
		return m.node
	}
	for _, d := range []struct {
		key string
		p   delayline.Params
	}{{"a_to_b", l.AtoB}, {"b_to_a", l.BtoA}} {
		one := flowMap()
		one.params(d.p)
		m.add(d.key, one.node)
	}
	return m.node
}

func endNode(e End) *yaml.Node {
	if e.Port == 0 && len(e.Addresses) == 0 {
		return scalar(e.Node)
	}
	m := flowMap()
	m.text("node", e.Node)
	m.number("port", e.Port)
	m.texts("addresses", prefixes(e.Addresses))
	return m.node
}

func (m mapping) params(p delayline.Params) {
	if p.Rate != 0 {
		m.text("rate", units.FormatRate(p.Rate))
	}
	if p.Delay != 0 {
		m.text("delay", p.Delay.String())
	}
	if p.Jitter != 0 {
		m.text("jitter", p.Jitter.String())
	}
	if p.Loss != 0 {
		m.text("loss", units.FormatShare(p.Loss))
	}
	if p.Queue != 0 {
		m.text("queue", units.FormatSize(p.Queue))
	}
}
