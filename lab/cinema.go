package lab

import (
	"github.com/sluice-net/sluice/lab/delayline"
)

// Cinema returns a network for live channels: a ring of four switches. Each has a host that stands
// for a gateway: "in1" and "in2" for producers, "out1" and "out2" for viewers. A host "viewer" is
// at the last switch. link gives the parameters of the links between switches.
func Cinema(name string, link delayline.Params) Topology {
	t := Topology{Name: name}
	for i, host := range []string{"in1", "in2", "out1", "out2"} {
		at := t.addSwitch(i + 1)
		t.Hosts = append(t.Hosts, Host{Name: host, Agent: true})
		t.Links = append(t.Links, Both(host, at, delayline.Params{}))
	}
	for i := range t.Switches {
		t.Links = append(t.Links, Both(switchName(i+1), switchName((i+1)%len(t.Switches)+1), link))
	}
	t.Hosts = append(t.Hosts, Host{Name: "viewer"})
	t.Links = append(t.Links, Both("viewer", switchName(len(t.Switches)), delayline.Params{}))
	return t
}
