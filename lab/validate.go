package lab

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Problem describes one problem of a topology. Line is 0 if the topology did not come from a file.
type Problem struct {
	Field string // path of the field, as in hosts.client.mtu
	Text  string
}

func (p Problem) Error() string { return p.Field + ": " + p.Text }

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,23}$`)

var linkPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

var sysctlPattern = regexp.MustCompile(`^net\.[a-z0-9_]+(\.[a-zA-Z0-9_-]+)*$`)

const (
	minMTU = 1280
	maxMTU = 65521 - 18
	// maxPort keeps OpenFlow ports below those that Open vSwitch uses itself.
	maxPort = 0xfeff
)

// maxControlDelay is the largest delay of a link to the control network. It is low enough for the
// time limits between a switch and its controller.
const maxControlDelay = time.Second

// Check fills in defaults and returns the first problem of a topology as a Problem, or nil.
func (t Topology) Check() error { return t.withDefaults().Validate() }

// Validate does what Check does, for a topology whose defaults are filled in.
func (t Topology) Validate() error {
	checks := []func(Topology) error{
		checkNames, checkControllers, checkSwitches, checkHosts, checkLinks, checkAddresses,
	}
	for _, check := range checks {
		if err := check(t); err != nil {
			return err
		}
	}
	return nil
}

func problem(field, format string, args ...any) error {
	return Problem{Field: field, Text: fmt.Sprintf(format, args...)}
}

func checkNames(t Topology) error {
	if !namePattern.MatchString(t.Name) {
		return problem("name", "%q is not 1 to 24 of a-z, 0-9, '-' and '_'", t.Name)
	}
	seen := map[string]string{controlNode: "the control network"}
	check := func(kind, name string) error {
		field := kind + "s." + name
		if !namePattern.MatchString(name) {
			return problem(field, "name %q is not 1 to 24 of a-z, 0-9, '-' and '_'", name)
		}
		if other, ok := seen[name]; ok {
			return problem(field, "the name is taken by %s", other)
		}
		seen[name] = "a " + kind
		return nil
	}
	for _, c := range t.Controllers {
		if err := check("controller", c.Name); err != nil {
			return err
		}
	}
	for _, s := range t.Switches {
		if err := check("switch", s.Name); err != nil {
			return err
		}
	}
	for _, h := range t.Hosts {
		if err := check("host", h.Name); err != nil {
			return err
		}
	}
	if n := max(len(t.Switches), len(t.Hosts)); n > maxNodes {
		return problem("name", "%d nodes of one kind are more than %d", n, maxNodes)
	}
	return nil
}

func checkControllers(t Topology) error {
	for _, c := range t.Controllers {
		if c.Port < 1 || c.Port > 65535 {
			return problem("controllers."+c.Name+".port", "%d is not between 1 and 65535", c.Port)
		}
	}
	return nil
}

var (
	datapaths    = []string{DatapathAuto, DatapathKernel, DatapathUserspace}
	protocols    = []string{"OpenFlow10", "OpenFlow11", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"}
	capabilities = []string{CapabilityL2Rewrite}
)

func checkSwitches(t Topology) error {
	byDPID := map[uint64]string{}
	for _, s := range t.Switches {
		field := "switches." + s.Name
		if other, ok := byDPID[s.DPID]; ok {
			return problem(field+".dpid", "%016x is the datapath id of %s", s.DPID, other)
		}
		byDPID[s.DPID] = s.Name
		if !slices.Contains(datapaths, s.Datapath) {
			return problem(field+".datapath", "%q is not one of %v", s.Datapath, datapaths)
		}
		for _, p := range s.Protocols {
			if !slices.Contains(protocols, p) {
				return problem(field+".protocols", "%q is not one of %v", p, protocols)
			}
		}
		for _, c := range s.Capabilities {
			if !slices.Contains(capabilities, c) {
				return problem(field+".capabilities", "%q is not one of %v", c, capabilities)
			}
		}
		if s.Tables != 0 && s.Tables != 1 {
			return problem(field+".tables", "%d is not 1; left out, the switch has all tables", s.Tables)
		}
		for _, c := range s.Controllers {
			if !slices.ContainsFunc(t.Controllers, func(x Controller) bool { return x.Name == c }) {
				return problem(field+".controllers", "there is no controller %q", c)
			}
		}
		if s.ControlDelay < 0 || s.ControlDelay > maxControlDelay {
			return problem(field+".control_delay", "%v is not between 0 and %v", s.ControlDelay, maxControlDelay)
		}
		if len(s.Flows) > 0 && len(s.Controllers) > 0 {
			return problem(field+".flows", "a switch with fixed flows has no controllers")
		}
	}
	return nil
}

func checkHosts(t Topology) error {
	for _, h := range t.Hosts {
		field := "hosts." + h.Name
		if h.MTU != 0 && (h.MTU < minMTU || h.MTU > maxMTU) {
			return problem(field+".mtu", "%d is not between %d and %d", h.MTU, minMTU, maxMTU)
		}
		if h.Dynamic && len(h.Addresses) > 0 {
			return problem(field+".dynamic", "a host that gets its addresses by itself has none of its own")
		}
		for name := range h.Sysctls {
			if !sysctlPattern.MatchString(name) {
				return problem(field+".sysctls", "%q is not a sysctl under net., such as net.ipv4.tcp_congestion_control", name)
			}
		}
		for _, r := range h.Routes {
			if r.To.Addr().Is4() != r.Via.Is4() {
				return problem(field+".routes", "%s and its gateway %s are of different families", r.To, r.Via)
			}
			if r.To != r.To.Masked() {
				return problem(field+".routes", "%s has host bits set; write %s", r.To, r.To.Masked())
			}
		}
	}
	return nil
}

func checkLinks(t Topology) error {
	names, ports := map[string]bool{}, map[string]bool{}
	for _, l := range t.Links {
		field := "links." + l.Name
		if names[l.Name] {
			return problem(field, "there are two links of this name; give them a name each")
		}
		names[l.Name] = true
		if !linkPattern.MatchString(l.Name) {
			return problem(field, "name %q is not 1 to 64 of letters, digits, '-', '_' and '.'", l.Name)
		}
		if strings.HasPrefix(l.Name, controlPrefixName) {
			return problem(field, "names that begin with %s are those of the links to the control network", controlPrefixName)
		}
		if l.A.Node == l.B.Node {
			return problem(field, "%s is linked to itself", l.A.Node)
		}
		if a, b := t.switchIndex(l.A.Node), t.switchIndex(l.B.Node); a >= 0 && b >= 0 && t.Switches[a].Offload != t.Switches[b].Offload {
			return problem(field, "one of its switches has offload and the other has not: checksums would be wrong between them")
		}
		if l.MTU < minMTU || l.MTU > maxMTU {
			return problem(field+".mtu", "%d is not between %d and %d", l.MTU, minMTU, maxMTU)
		}
		for _, e := range []End{l.A, l.B} {
			if err := checkEnd(t, field, e, ports); err != nil {
				return err
			}
		}
		if err := l.AtoB.Validate(); err != nil {
			return problem(field, "%v", err)
		}
		if err := l.BtoA.Validate(); err != nil {
			return problem(field, "%v", err)
		}
	}
	return nil
}

func checkEnd(t Topology, field string, e End, ports map[string]bool) error {
	isSwitch := t.switchIndex(e.Node) >= 0
	if !isSwitch && t.hostIndex(e.Node) < 0 {
		return problem(field, "there is no switch or host %q", e.Node)
	}
	if isSwitch && len(e.Addresses) > 0 {
		return problem(field+"."+e.Node, "a switch port has no addresses")
	}
	if e.Port == 0 {
		return nil
	}
	if !isSwitch || e.Port < 1 || e.Port > maxPort {
		return problem(field+"."+e.Node+".port", "%d is not a port of a switch, 1 to %d", e.Port, maxPort)
	}
	key := fmt.Sprintf("%s:%d", e.Node, e.Port)
	if ports[key] {
		return problem(field+"."+e.Node+".port", "port %d of %s is taken by another link", e.Port, e.Node)
	}
	ports[key] = true
	return nil
}

func checkAddresses(t Topology) error {
	owner := map[string]string{}
	check := func(field, node, addr string) error {
		if other, ok := owner[addr]; ok {
			return problem(field, "%s is also an address of %s", addr, other)
		}
		owner[addr] = node
		return nil
	}
	for _, h := range t.Hosts {
		for _, a := range h.Addresses {
			if controlPrefix.Overlaps(a.Masked()) {
				return problem("hosts."+h.Name+".addresses", "%s overlaps the control network %s", a, controlPrefix)
			}
			if err := check("hosts."+h.Name+".addresses", h.Name, a.Addr().String()); err != nil {
				return err
			}
		}
	}
	for _, l := range t.Links {
		for _, e := range []End{l.A, l.B} {
			for _, a := range e.Addresses {
				if controlPrefix.Overlaps(a.Masked()) {
					return problem("links."+l.Name, "%s overlaps the control network %s", a, controlPrefix)
				}
				if err := check("links."+l.Name, e.Node, a.Addr().String()); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
