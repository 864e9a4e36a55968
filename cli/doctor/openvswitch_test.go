package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// ovs returns a System with the given tables of Open vSwitch and interfaces.
func ovs(t *testing.T, tables, interfaces map[string]string) *System {
	s := machine(t, nil, map[string]string{"ovs-vsctl": "", "ip": ""})
	s.Output = func(_ context.Context, name string, args ...string) ([]byte, error) {
		if name == "ovs-appctl" {
			return nil, nil
		}
		if name == "ip" && interfaces["ip"] != "" {
			return []byte(interfaces["ip"]), nil
		}
		of := tables
		if name != "ovs-vsctl" {
			of = interfaces
		}
		if text, ok := of[args[len(args)-1]]; ok {
			return []byte(text), nil
		}
		return nil, errors.New("exit status 1")
	}
	return s
}

// healthy returns the tables of one bridge without faults, as Open vSwitch 3.1 prints them.
func healthy() map[string]string {
	return map[string]string{
		"Bridge":     `{"data":[["br0",["uuid","c1"],"0000000000000001","netdev","secure",["set",["OpenFlow13","OpenFlow14"]],["set",[["uuid","p0"],["uuid","p1"]]],["map",[["datapath-id","0000000000000001"]]]]],"headings":["name","controller","datapath_id","datapath_type","fail_mode","protocols","ports","other_config"]}`,
		"Controller": `{"data":[[["uuid","c1"],"tcp:192.0.2.1:6653",true,"other",["map",[["state","ACTIVE"]]]]],"headings":["_uuid","target","is_connected","role","status"]}`,
		"Port":       `{"data":[[["uuid","p0"],["uuid","i0"]],[["uuid","p1"],["set",[["uuid","i1"]]]]],"headings":["_uuid","interfaces"]}`,
		"Interface":  `{"data":[[["uuid","i0"],"br0","internal",65534,["set",[]],"up","up"],[["uuid","i1"],"eth1","",1,["set",[]],"up","up"]],"headings":["_uuid","name","type","ofport","error","admin_state","link_state"]}`,
	}
}

func TestOpenVSwitch(t *testing.T) {
	off := "tx-checksumming: off\ngeneric-receive-offload: off\nlarge-receive-offload: off [fixed]\n"
	const bridge = "bridge br0"
	for name, c := range map[string]struct {
		table, old, new string
		offloads        string
		check           string
		level           Level
		says            string
	}{
		"healthy":              {"", "", "", off, bridge, OK, "0000000000000001"},
		"not connected":        {"Controller", `true,"other",["map",[["state","ACTIVE"]]]`, `false,["set",[]],["map",[["last_error","Connection refused"],["sec_since_disconnect","7"]]]`, off, bridge, Fail, "not connected to tcp:192.0.2.1:6653: Connection refused, for 7 s"},
		"another is master":    {"Controller", `"other"`, `"slave"`, off, bridge, Fail, "master"},
		"standalone":           {"Bridge", `"secure"`, `["set",[]]`, off, bridge, Warn, "fail_mode=secure"},
		"old protocol":         {"Bridge", `["set",["OpenFlow13","OpenFlow14"]]`, `"OpenFlow14"`, off, bridge, Fail, "OpenFlow14 only"},
		"default protocols":    {"Bridge", `["set",["OpenFlow13","OpenFlow14"]]`, `["set",[]]`, off, bridge, OK, ""},
		"wrong datapath ID":    {"Bridge", `["datapath-id","0000000000000001"]`, `["datapath-id","zz"]`, off, bridge, Fail, "not zz"},
		"port is gone":         {"Interface", `"eth1","",1,["set",[]]`, `"eth1","",-1,"could not open network device eth1 (No such device)"`, off, bridge, Fail, "eth1 is not there: could not open"},
		"port is down":         {"Interface", `1,["set",[]],"up","up"`, `1,["set",[]],"up","down"`, off, bridge, Warn, "are down: eth1"},
		"it waits for one":     {"Controller", `"tcp:192.0.2.1:6653",true`, `"ptcp:6653",false`, off, bridge, OK, ""},
		"offloads":             {"", "", "", strings.Replace(off, "generic-receive-offload: off", "generic-receive-offload: on", 1), bridge, Warn, "ethtool -K eth1 gro off"},
		"offloads that stay":   {"", "", "", strings.Replace(off, "large-receive-offload: off [fixed]", "large-receive-offload: on [fixed]", 1), bridge, OK, ""},
		"offloads, kernel's":   {"Bridge", `"netdev"`, `"system"`, strings.Replace(off, "generic-receive-offload: off", "generic-receive-offload: on", 1), bridge, OK, ""},
		"its own checksums":    {"", "", "", strings.Replace(off, "tx-checksumming: off", "tx-checksumming: on", 1), bridge, OK, ""},
		"short datapath ID":    {"Bridge", `["datapath-id","0000000000000001"]`, `["datapath-id","0x1"]`, off, bridge, OK, ""},
		"not JSON":             {"Bridge", `{`, ``, off, "Open vSwitch", Fail, "cannot be read"},
		"other JSON":           {"Controller", `"data":[[["uuid","c1"],`, `"data":[[[7,"c1"],`, off, bridge, Fail, "not connected"},
		"without a controller": {"Bridge", `["uuid","c1"]`, `["set",[]]`, off, "Open vSwitch", Fail, "none of 1 bridges"},
		"two controllers":      {"Bridge", `["uuid","c1"]`, `["set",[["uuid","c1"],["uuid","c1"]]]`, off, bridge, Warn, "2 controllers"},
	} {
		t.Run(name, func(t *testing.T) {
			tables := healthy()
			if c.table != "" && !strings.Contains(tables[c.table], c.old) {
				t.Fatal("nothing is changed")
			}
			tables[c.table] = strings.Replace(tables[c.table], c.old, c.new, 1)
			s := ovs(t, tables, map[string]string{"eth1": c.offloads})
			level(t, s.switches(t.Context()), c.check, c.level, c.says)
			if is := s.isSwitch(t.Context()); is != (c.check == bridge) {
				t.Errorf("is a switch: %v", is)
			}
		})
	}
	level(t, machine(t, nil, nil).switches(t.Context()), "Open vSwitch", Fail, "not installed")
	level(t, ovs(t, healthy(), nil).switches(t.Context()), bridge, Fail, "eth1 is not there: the machine")
	level(t, ovs(t, nil, nil).switches(t.Context()), "Open vSwitch", Fail, "cannot be read")
	veth := map[string]string{"ip": `[{"ifname":"eth1","link":"far","linkinfo":{"info_kind":"veth"}}]`, "eth1": off, "far": "tx-checksumming: on\n"}
	level(t, ovs(t, healthy(), veth).switches(t.Context()), bridge, Warn, "ethtool -K far tx off")
	twice := healthy()
	one := strings.TrimSuffix(strings.SplitN(twice["Bridge"], `"data":[`, 2)[1], `],"headings":["name","controller","datapath_id","datapath_type","fail_mode","protocols","ports","other_config"]}`)
	twice["Bridge"] = strings.Replace(twice["Bridge"], one, one+","+strings.Replace(one, "br0", "br1", 1), 1)
	level(t, ovs(t, twice, map[string]string{"eth1": off}).switches(t.Context()), "bridge br1", Fail, "has the datapath ID of bridge br0")
}
