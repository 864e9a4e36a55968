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

// bridges holds the bridges of Open vSwitch's database and their controllers.
type bridges struct {
	bridges                        []row
	controllers, ports, interfaces map[string]row // by their identifiers
}

// readBridges reads the database. Its error wraps exec.ErrNotFound if there is no Open vSwitch.
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

// controlled returns the bridges that have a controller.
func (b bridges) controlled() []row {
	return slices.DeleteFunc(slices.Clone(b.bridges), func(r row) bool { return len(r.all("controller")) == 0 })
}

// isSwitch reports whether the machine is a switch, which means that one of its bridges has a
// controller.
func (s *System) isSwitch(ctx context.Context) bool {
	all, err := s.table(ctx, "Bridge", "name", "controller")
	return err == nil && len(bridges{bridges: all}.controlled()) > 0
}

// switches checks the bridges of Open vSwitch that have a controller.
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
		// Without the daemon, the database still has the former state of connections and ports, so
		// that is not checked.
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

// control returns findings about the connection between a bridge and its controllers.
func (b bridges) control(r row) (out []Finding) {
	name := r.text("name")
	add := func(yes bool, level Level, found, advice string) {
		if yes {
			out = append(out, bridgeFinding(r, level, found, advice))
		}
	}
	for _, id := range r.all("controller") {
		c := b.controllers[id]
		target, status := c.text("target"), c.pairs("status")
		switch {
		case strings.HasPrefix(target, "ptcp:") || strings.HasPrefix(target, "pssl:"): // no controller has to connect
		case c.text("is_connected") != "true":
			found := "not connected to " + target
			if why := status["last_error"]; why != "" {
				found += ": " + why
			}
			if since := status["sec_since_disconnect"]; since != "" {
				found += ", for " + since + " s"
			}
			add(true, Fail, found, "check whether the controller runs and listens there (openflow.listen), whether a firewall is in between, and with ssl: whether both trust the other's authority (ovs-vsctl get-ssl)")
		case c.text("role") == "slave":
			add(true, Fail, target+" is connected, and another controller is the bridge's master", "remove the other one: ovs-vsctl get-controller "+name)
		}
	}
	n, protocols := len(r.all("controller")), r.all("protocols")
	add(n > 1, Warn, fmt.Sprintf("has %d controllers", n), "fine for controllers that share the network; otherwise rules of one may shadow the other's (sluice doctor network): ovs-vsctl get-controller "+name)
	add(r.text("fail_mode") != "secure", Warn, "without its controller it forgets its rules and forwards by itself, in loops if the network has any", "ovs-vsctl set bridge "+name+" fail_mode=secure")
	add(len(protocols) > 0 && !slices.Contains(protocols, "OpenFlow13"), Fail, "speaks "+strings.Join(protocols, ", ")+" only", "ovs-vsctl set bridge "+name+" protocols=OpenFlow13")
	want, is := r.pairs("other_config")["datapath-id"], r.text("datapath_id")
	add(want != "" && plainID(want) != plainID(is), Fail, fmt.Sprintf("its datapath ID is %s, not %s as it is set", is, want), "16 hexadecimal digits, not all zero: ovs-vsctl set bridge "+name+" other_config:datapath-id=…")
	return out
}

// plainID returns a datapath ID in a canonical form: in lower case, without a prefix 0x and without
// leading zeros.
func plainID(id string) string {
	return strings.TrimLeft(strings.TrimPrefix(strings.ToLower(id), "0x"), "0")
}

// portsOf returns findings about a bridge's ports.
func (s *System) portsOf(ctx context.Context, b bridges, r row) (out []Finding) {
	var down []string
	missing := func(name, why string) {
		out = append(out, bridgeFinding(r, Fail, strings.TrimSuffix("port "+name+" is not there: "+why, ": "),
			"restore the interface, or remove the port: ovs-vsctl del-port "+r.text("name")+" "+name))
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
		out = append(out, bridgeFinding(r, Warn, "ports that are down: "+strings.Join(down, ", "), "fine if they are not used; otherwise check the cable and the other end, and: ip link set "+down[0]+" up"))
	}
	return out
}

// gone reports whether the machine has no interface of this name. Open vSwitch may notice late that an
// interface is gone.
func (s *System) gone(ctx context.Context, name string) bool {
	if _, err := s.LookPath("ip"); err != nil {
		return false
	}
	_, err := s.Output(ctx, "ip", "link", "show", "dev", name)
	return err != nil
}

// feature is an offload with its name in the output of ethtool and in its options.
type feature struct{ name, option string }

var (
	// merging lists offloads that make the userspace datapath receive packets larger than the MTU.
	merging = []feature{{"generic-receive-offload", "gro"}, {"large-receive-offload", "lro"}}
	// leaving lists offloads that leave checksums of sent packets to the device.
	leaving = []feature{{"tx-checksumming", "tx"}}
)

// offloads checks for offloads of an interface that leave packets incomplete, or merge them, before
// the userspace datapath reads them. Packets that the datapath sends by the port are complete. So
// tx-checksumming of the port does not matter. If the port is an end of a veth, tx-checksumming of the
// other end does.
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
	if i.pairs("status")["driver_name"] != "tun" { // receive offloads of a tun interface do nothing
		warn(name, merging, "drops packets that were merged into some larger than the MTU")
	}
	if end := s.otherEnd(ctx, name); end != "" {
		warn(end, leaving, "passes on its packets without checksums")
	}
	return out
}

// otherEnd returns the other end of a veth. It returns "" for other interfaces, and if the other
// end is in another namespace.
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

// switchedOn returns the features of an interface that are on and can be turned off, and ethtool's
// options for them.
func (s *System) switchedOn(ctx context.Context, name string, features []feature) (on, options []string, err error) {
	text, err := s.Output(ctx, "ethtool", "-k", name)
	for line := range strings.Lines(string(text)) {
		for _, f := range features {
			if value, ok := strings.CutPrefix(line, f.name+": on"); ok && !strings.Contains(value, "[fixed]") {
				on, options = append(on, f.name), append(options, f.option+" off")
			}
		}
	}
	return on, options, err
}

// row is a row of a table of Open vSwitch's database, as ovs-vsctl prints it in JSON (RFC 7047,
// section 5.1).
type row map[string]any

// table returns columns of all rows of a table.
func (s *System) table(ctx context.Context, name string, columns ...string) ([]row, error) {
	out, err := s.Output(ctx, "ovs-vsctl", "--timeout=5", "--format=json", "--columns="+strings.Join(columns, ","), "list", name)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && len(exit.Stderr) > 0 {
		err = fmt.Errorf("%w: %.200s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return nil, err
	}
	var t struct {
		Headings []string
		Data     [][]any
	}
	if err := json.Unmarshal(out, &t); err != nil {
		return nil, fmt.Errorf("what ovs-vsctl prints of table %s: %w", name, err)
	}
	var rows []row
	for _, d := range t.Data {
		r := row{}
		for i, h := range t.Headings[:min(len(t.Headings), len(d))] {
			r[h] = d[i]
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// tagged decodes a value with a type tag: ["set", …], ["map", …], ["uuid", …].
func tagged(v any) (kind string, value any) {
	if l, ok := v.([]any); ok && len(l) == 2 {
		if kind, ok := l[0].(string); ok {
			return kind, l[1]
		}
	}
	return "", v
}

// all returns the values of a column, which may be none.
func (r row) all(column string) []string {
	kind, v := tagged(r[column])
	elements, many := v.([]any)
	if kind != "set" || !many {
		elements = []any{r[column]}
	}
	var out []string
	for _, e := range elements {
		if _, value := tagged(e); value != nil {
			out = append(out, fmt.Sprint(value))
		}
	}
	return out
}

// text returns the value of a column, or "".
func (r row) text(column string) string { return strings.Join(r.all(column), ", ") }

// pairs returns the values of a column that is a map.
func (r row) pairs(column string) map[string]string {
	out := map[string]string{}
	_, v := tagged(r[column])
	list, _ := v.([]any)
	for _, p := range list {
		if kv, ok := p.([]any); ok && len(kv) == 2 {
			out[fmt.Sprint(kv[0])] = fmt.Sprint(kv[1])
		}
	}
	return out
}
