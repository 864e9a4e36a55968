package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// bridges is what Open vSwitch's database says of its bridges and their controllers.
type bridges struct {
	bridges                        []row
	controllers, ports, interfaces map[string]row // by their identifiers
}

// readBridges reads the database. The error wraps exec.ErrNotFound where there is no Open
// vSwitch.
func (s *System) readBridges(ctx context.Context) (b bridges, err error) {
	if _, err := s.LookPath("ovs-vsctl"); err != nil {
		return b, fmt.Errorf("%w: %w", exec.ErrNotFound, err)
	}
	b.bridges, err = s.table(ctx, "Bridge", "name", "controller", "datapath_id", "datapath_type", "fail_mode", "protocols", "ports", "other_config")
	if err != nil {
		return b, err
	}
	for _, t := range []struct {
		name    string
		columns []string
		into    *map[string]row
	}{
		{"Controller", []string{"_uuid", "target", "is_connected", "role", "status"}, &b.controllers},
		{"Port", []string{"_uuid", "interfaces"}, &b.ports},
		{"Interface", []string{"_uuid", "name", "type", "ofport", "error", "admin_state", "link_state", "status"}, &b.interfaces},
	} {
		rows, err := s.table(ctx, t.name, t.columns...)
		if err != nil {
			return b, err
		}
		*t.into = map[string]row{}
		for _, r := range rows {
			(*t.into)[r.text("_uuid")] = r
		}
	}
	return b, nil
}

// controlled are the bridges that have a controller.
func (b bridges) controlled() []row {
	return slices.DeleteFunc(slices.Clone(b.bridges), func(r row) bool { return len(r.all("controller")) == 0 })
}

// isSwitch says whether the machine is a switch: a bridge of it has a controller.
func (s *System) isSwitch(ctx context.Context) bool {
	all, err := s.table(ctx, "Bridge", "name", "controller")
	return err == nil && len(bridges{bridges: all}.controlled()) > 0
}

// switches looks at the bridges of Open vSwitch that have a controller.
func (s *System) switches(ctx context.Context) []Finding {
	b, err := s.readBridges(ctx)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return []Finding{{Check: "Open vSwitch", Level: Fail, Found: "not installed", Advice: "apt-get install openvswitch-switch"}}
	case err != nil:
		return []Finding{{Check: "Open vSwitch", Level: Fail, Found: "its database cannot be read: " + err.Error(), Advice: "as root: systemctl status openvswitch-switch"}}
	case len(b.controlled()) == 0:
		return []Finding{{
			Check: "Open vSwitch", Level: Fail, Found: fmt.Sprintf("none of %d bridges has a controller", len(b.bridges)),
			Advice: "ovs-vsctl set-controller BRIDGE tcp:ADDRESS:6653, or ssl: with certificates, see docs/how-to/deploy.md",
		}}
	}
	if _, err := s.Output(ctx, "ovs-appctl", "--timeout=5", "version"); err != nil {
		// What the database says of connections and ports is from before.
		return []Finding{{Check: "Open vSwitch", Level: Fail, Found: "its daemon ovs-vswitchd does not answer: " + err.Error(), Advice: "as root: systemctl restart openvswitch-switch"}}
	}
	var out []Finding
	first := map[string]string{} // bridges by datapath ID
	for _, r := range b.controlled() {
		found := append(b.control(r), s.portsOf(ctx, b, r)...)
		id := r.text("datapath_id")
		if other, again := first[id]; again {
			found = append(found, bridgeFinding(r, Fail, fmt.Sprintf("has the datapath ID of bridge %s, %s", other, id), "give each its own: ovs-vsctl set bridge "+r.text("name")+" other_config:datapath-id=…, 16 hexadecimal digits"))
		}
		first[id] = r.text("name")
		if len(found) == 0 {
			found = append(found, bridgeFinding(r, OK, "datapath ID "+id+", connected to its controller", ""))
		}
		out = append(out, found...)
	}
	return out
}

func bridgeFinding(r row, level Level, found, advice string) Finding {
	return Finding{Check: "bridge " + r.text("name"), Level: level, Found: found, Advice: advice}
}

// control says what is wrong between a bridge and its controllers.
func (b bridges) control(r row) (out []Finding) {
	name := r.text("name")
	add := func(level Level, found, advice string) { out = append(out, bridgeFinding(r, level, found, advice)) }
	for _, id := range r.all("controller") {
		c := b.controllers[id]
		target, status := c.text("target"), c.pairs("status")
		switch {
		case strings.HasPrefix(target, "ptcp:") || strings.HasPrefix(target, "pssl:"): // whoever comes, if anybody does
		case c.text("is_connected") != "true":
			found := "not connected to " + target
			if why := status["last_error"]; why != "" {
				found += ": " + why
			}
			if since := status["sec_since_disconnect"]; since != "" {
				found += ", for " + since + " s"
			}
			add(Fail, found, "see whether the controller runs and listens there (openflow.listen), whether a firewall is in between, and with ssl: whether both trust the other's authority (ovs-vsctl get-ssl)")
		case c.text("role") == "slave":
			add(Fail, target+" is connected, and another controller is the bridge's master", "take the other one out: ovs-vsctl get-controller "+name)
		}
	}
	if n := len(r.all("controller")); n > 1 {
		add(Warn, fmt.Sprintf("has %d controllers", n), "fine for controllers that share the network; else rules of one come before the other's (sluice doctor network): ovs-vsctl get-controller "+name)
	}
	if mode := r.text("fail_mode"); mode != "secure" {
		add(Warn, "without its controller it forgets its rules and forwards by itself, in loops if there are any", "ovs-vsctl set bridge "+name+" fail_mode=secure")
	}
	if all := r.all("protocols"); len(all) > 0 && !slices.Contains(all, "OpenFlow13") {
		add(Fail, "speaks "+strings.Join(all, ", ")+" only", "ovs-vsctl set bridge "+name+" protocols=OpenFlow13")
	}
	if want, is := r.pairs("other_config")["datapath-id"], r.text("datapath_id"); want != "" && plainID(want) != plainID(is) {
		add(Fail, fmt.Sprintf("its datapath ID is %s, not %s as it is set", is, want), "16 hexadecimal digits, not all zero: ovs-vsctl set bridge "+name+" other_config:datapath-id=…")
	}
	return out
}

// plainID is a datapath ID without what may be written in several ways.
func plainID(id string) string {
	return strings.TrimLeft(strings.TrimPrefix(strings.ToLower(id), "0x"), "0")
}

// portsOf says what is wrong with a bridge's ports.
func (s *System) portsOf(ctx context.Context, b bridges, r row) (out []Finding) {
	var down []string
	missing := func(name, why string) {
		out = append(out, bridgeFinding(r, Fail, strings.TrimSuffix("port "+name+" is not there: "+why, ": "),
			"bring the interface back, or take the port out: ovs-vsctl del-port "+r.text("name")+" "+name))
	}
	for _, id := range r.all("ports") {
		for _, id := range b.ports[id].all("interfaces") {
			i := b.interfaces[id]
			name := i.text("name")
			switch {
			case i.text("error") != "" || i.text("ofport") == "-1":
				missing(name, i.text("error"))
			case i.text("type") == "" && s.gone(ctx, name):
				missing(name, "the machine has no interface of this name")
			case i.text("type") == "internal":
			case i.text("admin_state") == "down" || i.text("link_state") == "down":
				down = append(down, name)
			case i.text("type") == "" && r.text("datapath_type") == "netdev":
				out = append(out, s.offloads(ctx, r, i)...)
			}
		}
	}
	if len(down) > 0 {
		out = append(out, bridgeFinding(r, Warn, "ports that are down: "+strings.Join(down, ", "), "nothing if nobody uses them; else look at cable and far end, and: ip link set "+down[0]+" up"))
	}
	return out
}

// gone says whether the machine has no such interface, which Open vSwitch may notice late.
func (s *System) gone(ctx context.Context, name string) bool {
	if _, err := s.LookPath("ip"); err != nil {
		return false
	}
	_, err := s.Output(ctx, "ip", "link", "show", "dev", name)
	return err != nil
}

// feature is an offload, as ethtool prints it and as it takes it.
type feature struct{ name, option string }

var (
	// merging offloads have the userspace datapath receive packets larger than the MTU.
	merging = []feature{{"generic-receive-offload", "gro"}, {"large-receive-offload", "lro"}}
	// leaving offloads leave checksums to a device.
	leaving = []feature{{"tx-checksumming", "tx"}}
)

// offloads looks for what the kernel leaves undone, or does too much, to packets that the
// userspace datapath takes from an interface. What the port itself sends is complete: its
// own tx-checksumming does not matter, that of a veth's other end does.
func (s *System) offloads(ctx context.Context, r, i row) (out []Finding) {
	name := i.text("name")
	warn := func(of string, features []feature, found string) {
		on, options, err := s.switchedOn(ctx, of, features)
		switch {
		case err != nil:
			out = append(out, bridgeFinding(r, Info, "offloads of "+of+" cannot be read: "+err.Error(), ""))
		case len(on) > 0:
			out = append(out, bridgeFinding(r, Warn, fmt.Sprintf("%s has %s on: the userspace datapath %s", of, strings.Join(on, ", "), found), fmt.Sprintf("ethtool -K %s %s", of, strings.Join(options, " "))))
		}
	}
	if i.pairs("status")["driver_name"] != "tun" { // there receive offloads do nothing
		warn(name, merging, "drops packets that were merged into some larger than the MTU")
	}
	if end := s.otherEnd(ctx, name); end != "" {
		warn(end, leaving, "passes on its packets without checksums")
	}
	return out
}

// otherEnd is the other end of a veth; empty for anything else, and in another namespace.
func (s *System) otherEnd(ctx context.Context, name string) string {
	out, err := s.Output(ctx, "ip", "-json", "-details", "link", "show", "dev", name)
	var links []struct {
		Link     string
		LinkInfo struct {
			Kind string `json:"info_kind"`
		}
	}
	if err != nil || json.Unmarshal(out, &links) != nil || len(links) != 1 || links[0].LinkInfo.Kind != "veth" {
		return ""
	}
	return links[0].Link
}

// switchedOn says which features of an interface are on and could be off, and ethtool's
// options for that.
func (s *System) switchedOn(ctx context.Context, name string, features []feature) (on, options []string, err error) {
	text, err := s.Output(ctx, "ethtool", "-k", name)
	for line := range strings.Lines(string(text)) {
		for _, f := range features {
			if value, is := strings.CutPrefix(line, f.name+": on"); is && !strings.Contains(value, "[fixed]") {
				on, options = append(on, f.name), append(options, f.option+" off")
			}
		}
	}
	return on, options, err
}
