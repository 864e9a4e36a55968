package lab

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/namespace"
	"github.com/sluice-net/sluice/lab/delayline"
)

// Status holds the state of a lab at one time.
type Status struct {
	Name        string             `json:"name"`
	Created     time.Time          `json:"created"`
	Complete    bool               `json:"complete"` // false: its building never ended
	Shaping     string             `json:"shaping"`
	Controllers []ControllerStatus `json:"controllers"`
	Switches    []SwitchStatus     `json:"switches"`
	Hosts       []HostStatus       `json:"hosts"`
	Links       []LinkStatus       `json:"links"`
}

// ControllerStatus holds the address at which a controller is expected.
type ControllerStatus struct {
	Name    string         `json:"name"`
	Address netip.AddrPort `json:"address"`
}

// SwitchStatus holds the state of a switch's daemon.
type SwitchStatus struct {
	Name      string     `json:"name"`
	DPID      string     `json:"dpid"`
	Namespace string     `json:"namespace"`
	Control   netip.Addr `json:"control"`
	Running   bool       `json:"running"`
	Connected bool       `json:"connected"` // to a controller
}

// HostStatus holds the state of a host's namespace.
type HostStatus struct {
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	Control   netip.Addr     `json:"control,omitzero"`
	Processes int            `json:"processes"` // processes that run in it
}

// LinkStatus holds the ends of a link and, if it is in the delay line, its state.
type LinkStatus struct {
	Name  string               `json:"name"`
	A     string               `json:"a"` // as NODE INTERFACE
	B     string               `json:"b"`
	MTU   int                  `json:"mtu"`
	Up    bool                 `json:"up"` // reports whether the cable is plugged in
	State *delayline.LinkState `json:"state,omitempty"`
}

// Status asks every part of the lab for its state. A part that does not answer is reported as not
// running.
func (l *Lab) Status(ctx context.Context) Status {
	st := Status{Name: l.Name(), Created: l.record.Created, Complete: l.record.Complete, Shaping: l.shaper}
	for _, c := range l.plan.Topology.Controllers {
		addr, _ := l.ControllerAddrOf(c.Name) // The controller is in the topology.
		st.Controllers = append(st.Controllers, ControllerStatus{Name: c.Name, Address: addr})
	}
	for _, s := range l.plan.Topology.Switches {
		st.Switches = append(st.Switches, l.Switch(s.Name).status(ctx))
	}
	for _, h := range l.plan.Topology.Hosts {
		st.Hosts = append(st.Hosts, l.Host(h.Name).status())
	}
	var lines map[string]delayline.LinkState
	if l.shaper == ShapingDelayLine {
		lines, _ = l.delayLine().State(ctx) // It fails if no link is shaped or the process has ended.
	}
	for _, w := range l.wires() {
		k := LinkStatus{Name: w.Link.Name, A: w.A.String(), B: w.B.String(), MTU: w.Link.MTU}
		k.Up, _ = w.cableUp() // A link that is missing is not up.
		if state, ok := lines[w.Link.Name]; ok {
			k.State, k.Up = &state, state.Up
		}
		st.Links = append(st.Links, k)
	}
	return st
}

func (f iface) String() string { return f.Node + ":" + f.Name }

func (s *LiveSwitch) status(ctx context.Context) SwitchStatus {
	st := SwitchStatus{
		Name: s.name, DPID: fmt.Sprintf("%016x", s.spec.DPID),
		Namespace: s.Namespace(), Control: s.lab.ControlAddr(s.name),
	}
	_, err := s.Appctl(ctx, "version")
	st.Running = err == nil
	if out, err := s.Vsctl(ctx, "--bare", "--columns=is_connected", "list", "Controller"); err == nil {
		st.Connected = strings.Contains(out, "true")
	}
	return st
}

func (h *LiveHost) status() HostStatus {
	st := HostStatus{
		Name: h.name, Namespace: h.Namespace(),
		Addresses: h.addresses(), Control: h.ControlAddr(),
	}
	if pids, err := namespace.Members([]string{h.Namespace()}); err == nil {
		st.Processes = len(pids)
	}
	return st
}

// WaitConnected waits until every switch that has a controller is connected to one. From then on a
// switch that loses its controller tries to reach it every second.
func (l *Lab) WaitConnected(ctx context.Context) error {
	for _, s := range l.plan.Topology.Switches {
		if len(s.Flows) > 0 {
			continue
		}
		if err := l.Switch(s.Name).waitConnected(ctx); err != nil {
			return fmt.Errorf("switch %s is not connected to a controller: %w", s.Name, err)
		}
	}
	return nil
}

// waitConnected waits, in ovs-vsctl, until the switch's first controller is connected. Then it sets
// the longest time between connection attempts again: Open vSwitch 3.1 applies the setting only to
// connections that are up when it changes, and would try every 8 s otherwise.
func (s *LiveSwitch) waitConnected(ctx context.Context) error {
	id, err := s.Vsctl(ctx, "--bare", "--columns=_uuid", "list", "Controller")
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(strings.TrimSpace(id), "\n")
	if _, err := s.Vsctl(ctx, "wait-until", "Controller", first, "is_connected=true"); err != nil {
		return err
	}
	_, err = s.Vsctl(ctx, "set", "Controller", first, "max_backoff="+strconv.Itoa(controllerBackoff+1))
	return err
}

// Node returns a namespace of the lab by its name: that of a host or switch, or "ctl" for the
// control network.
func (l *Lab) Node(name string) (Namespace, error) {
	t := l.plan.Topology
	if name != controlNode && t.hostIndex(name) < 0 && t.switchIndex(name) < 0 {
		names := []string{controlNode}
		for _, h := range t.Hosts {
			names = append(names, h.Name)
		}
		for _, s := range t.Switches {
			names = append(names, s.Name)
		}
		return Namespace{}, fmt.Errorf("lab %s has no node %q; it has %s", l.Name(), name, strings.Join(names, ", "))
	}
	return Namespace{node{lab: l, name: name}}, nil
}

// Namespace is the namespace of a node of any kind.
type Namespace struct{ node }

// CheckCapabilities returns an error that names the first rule of the switch that the hardware it
// stands for could not support.
func (s *LiveSwitch) CheckCapabilities(ctx context.Context) error {
	limited := false
	for _, c := range s.spec.Capabilities {
		limited = limited || c == CapabilityL2Rewrite
	}
	if !limited {
		return nil
	}
	flows, err := s.Ofctl(ctx, "dump-flows")
	if err != nil {
		return err
	}
	for line := range strings.Lines(flows) {
		if action := beyondL2(line); action != "" {
			return fmt.Errorf("switch %s rewrites Ethernet addresses only, but has %q in: %s",
				s.name, action, strings.TrimSpace(line))
		}
	}
	return nil
}

// beyondL2 returns the first action of a rule that rewrites anything but an Ethernet address.
func beyondL2(rule string) string {
	_, actions, _ := strings.Cut(rule, "actions=")
	for action := range strings.SplitSeq(strings.TrimSpace(actions), ",") {
		name, rest, _ := strings.Cut(action, ":")
		switch {
		case name == "set_field" && (strings.HasSuffix(rest, "->eth_dst") || strings.HasSuffix(rest, "->eth_src")):
		case name == "set_field" || strings.HasPrefix(name, "mod_nw") || strings.HasPrefix(name, "mod_tp"):
			return action
		}
	}
	return ""
}
