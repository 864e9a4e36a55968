package soak

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
)

// part is the service to which a host or switch belongs. Each service has hosts of its own, because
// this package does not test the effects of services on each other's packets.
type part string

const (
	partSOS      part = "sos"
	partHandover part = "handover"
	partQoS      part = "qos"
	partAll      part = "all" // what the controller affects: all parts
)

// qosRate is the rate of the links between the switches of the classes, in bit/s.
const qosRate = 100e6

// mobility returns the options of the part of the network in which the device moves.
func mobility() lab.MobilityOptions {
	return lab.MobilityOptions{
		Levels: 2, Fanout: 3,
		Link: delayline.Params{Delay: time.Millisecond}, Radio: delayline.Params{Rate: 50e6, Delay: 2 * time.Millisecond},
	}
}

// wanLinks lists two links that join the sites of SOS, so that one of them may fail.
var wanLinks = []string{"wan-1", "wan-2"}

// flappingLinks returns the links that are taken down; there is another path around each.
func flappingLinks() []string { return append([]string{"q1-q2", "q1-q3", "q2-q3"}, wanLinks...) }

// topology returns three networks in one: a tree in which a device moves, two sites with agents,
// and a triangle with classes.
func topology() lab.Topology {
	t := lab.Mobility(fmt.Sprintf("soak-%d", os.Getpid()), mobility())
	plain := func(a, b string) lab.Link { return lab.Both(a, b, delayline.Params{}) }
	for _, name := range []string{"s1", "s2", "q1", "q2", "q3"} {
		t.Switches = append(t.Switches, lab.Switch{Name: name})
	}
	for i, name := range wanLinks {
		l := lab.Both("s1", "s2", delayline.Params{Rate: 200e6, Delay: time.Duration(10+5*i) * time.Millisecond})
		l.Name = name
		t.Links = append(t.Links, l)
	}
	t.Links = append(t.Links, plain("q1", "q2"), plain("q1", "q3"), plain("q2", "q3"), plain("root", "s1"), plain("s2", "q1"))
	host := func(sw string, hosts ...lab.Host) {
		for _, h := range hosts {
			t.Hosts = append(t.Hosts, h)
			t.Links = append(t.Links, plain(h.Name, sw))
		}
	}
	host("s1", lab.Host{Name: "client"}, lab.Host{Name: "x", Agent: true})
	host("s2", lab.Host{Name: "web"}, lab.Host{Name: "y", Agent: true})
	host("s1", lab.Host{Name: rogues[0]})
	host("edge1", lab.Host{Name: rogues[1]})
	host("q1", lab.Host{Name: "critical1"}, lab.Host{Name: "class1"}, lab.Host{Name: "plain1"})
	host("q2", lab.Host{Name: "critical2"}, lab.Host{Name: "class2"}, lab.Host{Name: "plain2"})
	return t
}

// partOf returns the part that a switch belongs to.
func partOf(sw string) part {
	switch sw[0] {
	case 's':
		return partSOS
	case 'q':
		return partQoS
	}
	return partHandover
}

// networkConfig writes the capacities of the links of the classes for the controller.
func networkConfig(l *lab.Lab) (string, error) {
	ports := map[string][]string{}
	for _, link := range l.Topology().Links {
		for _, end := range []lab.End{link.A, link.B} {
			if !isQoSSwitch(l, end.Node) {
				continue
			}
			port, err := l.Switch(end.Node).Port(link.Name)
			if err != nil {
				return "", err
			}
			ports[end.Node] = append(ports[end.Node], fmt.Sprintf("%d: %s", port, units.FormatRate(qosRate)))
		}
	}
	text := "  switches:\n"
	for _, s := range l.Topology().Switches {
		if len(ports[s.Name]) > 0 {
			text += fmt.Sprintf("    %016x: {name: %s, capacity: {%s}}\n", l.Switch(s.Name).DPID(), s.Name, strings.Join(ports[s.Name], ", "))
		}
	}
	return text, nil
}

// isQoSSwitch reports whether a node is a switch of the classes.
func isQoSSwitch(l *lab.Lab, node string) bool {
	for _, s := range l.Topology().Switches {
		if s.Name == node {
			return partOf(node) == partQoS
		}
	}
	return false
}

// servicesConfig returns the configuration of handover and QoS.
func servicesConfig(l *lab.Lab) string {
	d := mobility().Domain()
	text := fmt.Sprintf(`handover:
  enabled: true
  domain: home
  borders:
    - {port: %016x/%d}
  pools:
    devices: {prefix: %v, gateway: %v, first: %v}
qos: {queues: connect}
ovsdb:
  switches:
`, l.Switch(d.Root).DPID(), lab.UplinkPort, d.Prefix, d.GatewayAddr, d.GatewayAddr.Next().Next())
	for _, s := range l.Topology().Switches {
		if partOf(s.Name) == partQoS {
			text += fmt.Sprintf("    %016x: %s\n", l.Switch(s.Name).DPID(), l.Switch(s.Name).Database())
		}
	}
	return text
}
