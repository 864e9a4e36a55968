package lab_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/strictyaml"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
)

const example = `
name: example
controllers:
  c1: {port: 6653}
  c2:
switches:
  s1: {dpid: 00000000000000aa, datapath: userspace, protocols: [OpenFlow13], capabilities: [l2-rewrite], controllers: [c1]}
  s2:
  fixed: {flows: ["in_port=1,actions=output:2"]}
hosts:
  client:
    addresses: [10.1.0.1/24, "fd00:1::1/64"]
    routes: [{to: default, via: 10.1.0.254}, {to: "fd00:2::/64", via: "fd00:1::fe"}]
    mtu: 9000
    congestion: cubic
    sysctls: {net.ipv4.tcp_mtu_probing: 1}
    agent: true
  server:
links:
  - ends: [client, s1]
    mtu: 9000
  - {ends: [s2, server]}
  - name: wan
    ends: [{node: s1, port: 7}, s2]
    a_to_b: {rate: 100Mbit}
    rate: 1Gbit
    delay: 25ms
    jitter: 1ms
    loss: 0.01%
    queue: 5MB
`

func TestParseExample(t *testing.T) {
	topology, err := lab.Parse("example.yaml", []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	wan := topology.Links[2]
	want := delayline.Params{Rate: 1e9, Delay: 25 * time.Millisecond, Jitter: time.Millisecond, Loss: 0.0001, Queue: 5e6}
	if wan.BtoA != want {
		t.Errorf("B to A is %+v, want %+v", wan.BtoA, want)
	}
	want.Rate = 100e6
	if wan.AtoB != want || wan.A.Port != 7 {
		t.Errorf("A to B is %+v at port %d, want %+v at 7", wan.AtoB, wan.A.Port, want)
	}
	if s := topology.Switches[0]; s.DPID != 0xaa || s.Capabilities[0] != lab.CapabilityL2Rewrite {
		t.Errorf("s1 is %+v", s)
	}
	if s := topology.Switches[1]; s.DPID != 2 || s.Protocols[0] != "OpenFlow13" {
		t.Errorf("s2 has not its defaults: %+v", s)
	}
	client, server := topology.Hosts[0], topology.Hosts[1]
	if len(client.Routes) != 2 || client.Routes[0].To.Bits() != 0 || client.Sysctls["net.ipv4.tcp_mtu_probing"] != "1" || !client.Agent {
		t.Errorf("client is %+v", client)
	}
	if len(server.Addresses) != 2 || !server.Addresses[0].Addr().Is4() || !server.Addresses[1].Addr().Is6() {
		t.Errorf("server was given addresses %v", server.Addresses)
	}
}

// invalidTopologies holds invalid topologies, with the line and a part of the message that each must get.
var invalidTopologies = []struct {
	name, text string
	line       int
	says       string
}{
	{"empty", "", 0, "empty"},
	{"not a mapping", "- a", 1, "not a mapping"},
	{"broken YAML", "name: [", 1, "not readable"},
	{"two documents", "name: a\n---\nname: b\n", 2, "second document"},
	{"unknown key", "name: a\nswichtes: {}\n", 2, "unknown key"},
	{"unknown switch key", "name: a\nswitches:\n  s1: {dpd: 1}\n", 3, `did you mean "dpid"?`},
	{"unknown host key", "name: a\nhosts:\n  h1:\n    adress: x\n", 4, "unknown key"},
	{"unknown link key", "name: a\nlinks:\n  - speed: 1\n", 3, "known here: a_to_b"},
	{"key twice", "name: a\nname: b\n", 2, "given twice: keep one of the two (the first is in line 1)"},
	{"host twice", "name: a\nhosts:\n  h1:\n  h1:\n", 4, "given twice"},
	{"no name", "hosts: {h1: }\n", 1, "name"},
	{"bad name", "name: A_B!\n", 1, "not 1 to 24"},
	{"name too long", "name: aaaaaaaaaaaaaaaaaaaaaaaaa\n", 1, "not 1 to 24"},
	{"bad host name", "name: a\nhosts:\n  H/1: {}\n", 3, "not 1 to 24"},
	{"reserved name", "name: a\nhosts:\n  ctl: {}\n", 3, "control network"},
	{"name of two kinds", "name: a\nswitches: {n1: }\nhosts:\n  n1:\n", 0, "taken by"},
	{"alias", "name: a\nhosts:\n  h1: &x {mtu: 1500}\n  h2: *x\n", 4, "alias"},
	{"dpid", "name: a\nswitches:\n  s1: {dpid: 12}\n", 3, "16 hexadecimal digits"},
	{"dpid zero", "name: a\nswitches:\n  s1: {dpid: 0x0}\n", 3, "not 0"},
	{"dpid twice", "name: a\nswitches:\n  s1: {dpid: 0x2}\n  s2:\n", 4, "datapath id of s1"},
	{"datapath", "name: a\nswitches:\n  s1: {datapath: dpdk}\n", 3, "not one of"},
	{"protocol", "name: a\nswitches:\n  s1: {protocols: [OpenFlow2]}\n", 3, "not one of"},
	{"capability", "name: a\nswitches:\n  s1: {capabilities: [slow]}\n", 3, "not one of"},
	{"no such controller", "name: a\nswitches:\n  s1: {controllers: [c9]}\n", 3, "no controller"},
	{"flows and controller", "name: a\nswitches:\n  s1: {controllers: [c1], flows: [actions=drop]}\n", 3, "fixed flows"},
	{"controller port", "name: a\ncontrollers:\n  c1: {port: 70000}\n", 3, "65535"},
	{"address", "name: a\nhosts:\n  h1:\n    addresses: [10.0.0.1]\n", 4, "prefix length"},
	{"address twice", "name: a\nhosts:\n  h1: {addresses: [10.0.0.1/8]}\n  h2: {addresses: [10.0.0.1/8]}\n", 4, "also an address of h1"},
	{"control address", "name: a\nhosts:\n  h1: {addresses: [198.18.3.4/24]}\n", 3, "control network"},
	{"route without gateway", "name: a\nhosts:\n  h1: {routes: [{to: default}]}\n", 3, "gateway"},
	{"route prefix", "name: a\nhosts:\n  h1: {routes: [{to: 10, via: 10.0.0.1}]}\n", 3, "not a prefix"},
	{"route families", "name: a\nhosts:\n  h1: {routes: [{to: 'fd00::/8', via: 10.0.0.1}]}\n", 3, "different families"},
	{"route host bits", "name: a\nhosts:\n  h1: {routes: [{to: 10.0.0.1/8, via: 10.0.0.1}]}\n", 3, "10.0.0.0/8"},
	{"sysctl", "name: a\nhosts:\n  h1: {sysctls: {kernel.panic: 1}}\n", 3, "not a sysctl under net."},
	{"sysctl path", "name: a\nhosts:\n  h1: {sysctls: {net.ipv4.x/../y: 1}}\n", 3, "not a sysctl under net."},
	{"host MTU", "name: a\nhosts:\n  h1: {mtu: 100}\n", 3, "between 1280"},
	{"MTU text", "name: a\nhosts:\n  h1: {mtu: big}\n", 3, "whole number"},
	{"boolean", "name: a\nhosts:\n  h1: {agent: yes}\n", 3, "not true or false"},
	{"list expected", "name: a\nhosts:\n  h1: {addresses: 10.0.0.1/8}\n", 3, "expected a list"},
	{"value expected", "name: [a]\n", 1, "single value"},
	{"one end", "name: a\nhosts: {h1: }\nlinks:\n  - ends: [h1]\n", 4, "two ends"},
	{"three ends", "name: a\nhosts: {h1: }\nlinks:\n  - ends: [h1, h1, h1]\n", 4, "not 3"},
	{"unknown end", "name: a\nhosts: {h1: }\nlinks:\n  - ends: [h1, h2]\n", 4, `no switch or host "h2"`},
	{"loop", "name: a\nhosts: {h1: }\nlinks:\n  - ends: [h1, h1]\n", 4, "linked to itself"},
	{"same link name", "name: a\nhosts: {h1: , h2: }\nlinks:\n  - ends: [h1, h2]\n  - ends: [h1, h2]\n", 5, "two links of this name"},
	{"link name", "name: a\nhosts: {h1: , h2: }\nlinks:\n  - {name: 'a b', ends: [h1, h2]}\n", 4, "not 1 to 64"},
	{"link MTU", "name: a\nhosts: {h1: , h2: }\nlinks:\n  - {ends: [h1, h2], mtu: 70000}\n", 4, "not between"},
	{"rate without unit", "name: a\nhosts: {h1: , h2: }\nlinks:\n  - {ends: [h1, h2],\n     rate: 100}\n", 5, "300Mbit"},
	{"rate too low", "name: a\nhosts: {h1: , h2: }\nlinks:\n  - {ends: [h1, h2], rate: 1bit}\n", 4, "below 1 kbit/s"},
	{"rate too high", "name: a\nhosts: {h1: , h2: }\nlinks:\n  - {ends: [h1, h2], rate: 999Tbit}\n", 4, "not between"},
	{"delay", "name: a\nhosts: {h1: , h2: }\nlinks:\n  - {ends: [h1, h2], delay: 25}\n", 4, "25ms"},
	{"delay too long", "name: a\nhosts: {h1: , h2: }\nlinks:\n  - {ends: [h1, h2], delay: 1h}\n", 4, "not between"},
	{"jitter", "name: a\nhosts: {h1: , h2: }\nlinks:\n  - {ends: [h1, h2], delay: 1ms, jitter: 2ms}\n", 4, "more than the delay"},
	{"loss without percent", "name: a\nhosts: {h1: , h2: }\nlinks:\n  - {ends: [h1, h2], loss: 0.01}\n", 4, "percent"},
	{"queue", "name: a\nhosts: {h1: , h2: }\nlinks:\n  - {ends: [h1, h2], queue: 5}\n", 4, "64KiB"},
	{"direction", "name: a\nhosts: {h1: , h2: }\nlinks:\n  - ends: [h1, h2]\n    a_to_b: {mtu: 1500}\n", 5, "unknown key"},
	{"port of a host", "name: a\nhosts: {h1: , h2: }\nlinks:\n  - ends: [{node: h1, port: 2}, h2]\n", 4, "not a port of a switch"},
	{"port twice", "name: a\nswitches: {s1: , s2: }\nlinks:\n  - ends: [{node: s1, port: 2}, s2]\n  - {name: b, ends: [{node: s1, port: 2}, s2]}\n", 5, "taken by another link"},
	{"offload on one side", "name: a\nswitches: {s1: {offload: true}, s2: }\nlinks:\n  - ends: [s1, s2]\n", 4, "checksums would be wrong"},
	{"switch with address", "name: a\nswitches: {s1: , s2: }\nlinks:\n  - ends: [{node: s1, addresses: [10.0.0.1/8]}, s2]\n", 4, "no addresses"},
}

func TestWrongTopologies(t *testing.T) {
	for _, c := range invalidTopologies {
		t.Run(c.name, func(t *testing.T) {
			_, err := lab.Parse("net.yaml", []byte(c.text))
			if err == nil {
				t.Fatal("accepted")
			}
			where := "net.yaml:"
			if c.line > 0 {
				where = fmt.Sprintf("net.yaml:%d: ", c.line)
			}
			if !strings.Contains(err.Error(), where) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("says %q, want %q and %q", err, where, c.says)
			}
		})
	}
}

func TestAllProblemsAreReported(t *testing.T) {
	_, err := lab.Parse("net.yaml", []byte("nmae: a\nhosts:\n  h1: {mtu: x}\nlinks:\n  - {ends: [h1, h1], rate: 1}\n"))
	var problems strictyaml.Problems
	if !errors.As(err, &problems) || len(problems) != 3 {
		t.Fatalf("want three problems, got %v", err)
	}
	for i, line := range []int{1, 3, 5} {
		if problems[i].Line != line {
			t.Errorf("problem %d is in line %d, want %d", i, problems[i].Line, line)
		}
	}
}

// shapes returns one topology of each generator.
func shapes() []lab.Topology {
	link := delayline.Params{Rate: 10e6, Delay: time.Millisecond, Loss: 0.0001}
	return []lab.Topology{
		lab.Line("line", 3, link), lab.Ring("ring", 4, link), lab.Tree("tree", 3, 2, link), lab.FatTree("fat", 4, link),
		lab.WAN("wan", lab.WANOptions{}), lab.TwoPathWAN("two", link, link), lab.LimitedWAN("limited", lab.WANOptions{MTU: 9000, Offload: true}),
		lab.Islands("islands", lab.WANOptions{}), lab.Routed("routed", lab.WANOptions{}), lab.VLANWAN("vlan", lab.WANOptions{}),
	}
}

func TestGeneratedTopologiesSurviveYAML(t *testing.T) {
	for _, topology := range shapes() {
		t.Run(topology.Name, func(t *testing.T) {
			b, err := topology.YAML()
			if err != nil {
				t.Fatal(err)
			}
			first, err := lab.Parse("generated", b)
			if err != nil {
				t.Fatalf("%v\n%s", err, b)
			}
			b, err = first.YAML()
			if err != nil {
				t.Fatal(err)
			}
			second, err := lab.Parse("again", b)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(first, second) {
				t.Errorf("changed on the way:\n%+v\n%+v", first, second)
			}
		})
	}
}

func TestFatTreeSizes(t *testing.T) {
	top := lab.FatTree("fat", 6, delayline.Params{})
	if len(top.Switches) != 45 || len(top.Hosts) != 54 || len(top.Links) != 162 {
		t.Errorf("k=6: %d switches, %d hosts, %d links; want 45, 54, 162", len(top.Switches), len(top.Hosts), len(top.Links))
	}
}

// FuzzParse checks that Parse returns an error, or a topology that can be read back from its own
// YAML.
func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	for _, c := range invalidTopologies {
		f.Add([]byte(c.text))
	}
	for _, topology := range shapes() {
		b, err := topology.YAML()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		topology, err := lab.Parse("fuzz", b)
		if err != nil {
			return
		}
		text, err := topology.YAML()
		if err != nil {
			t.Fatalf("cannot write %+v: %v", topology, err)
		}
		if _, err := lab.Parse("again", text); err != nil {
			t.Fatalf("cannot read its own YAML: %v\n%s", err, text)
		}
	})
}

// FuzzUnits checks that parsing a unit returns an error, or a value whose text parses to the same
// value.
func FuzzUnits(f *testing.F) {
	for _, s := range []string{"300Mbit", "1.5Gbit/s", "64KiB", "25ms", "0.05%", "-1%", "1e9bit", "٣Mbit"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := units.ParseRate(s); err == nil {
			if back, err := units.ParseRate(units.FormatRate(v)); err != nil || back != v {
				t.Errorf("rate %q is %v, then %v %v", s, v, back, err)
			}
		}
		if v, err := units.ParseSize(s); err == nil {
			if back, err := units.ParseSize(units.FormatSize(v)); err != nil || back != v {
				t.Errorf("size %q is %v, then %v %v", s, v, back, err)
			}
		}
		if v, err := units.ParseShare(s); err == nil && (v < 0 || v > 1) {
			t.Errorf("share %q is %v", s, v)
		}
		if v, err := units.ParseTime(s); err == nil && v < 0 {
			t.Errorf("time %q is %v", s, v)
		}
	})
}
