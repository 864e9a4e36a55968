package network

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/packet"
)

// TestLinksOfAccessPortsAreTold checks that a link at a port for end hosts is reported, and one
// elsewhere is not.
func TestLinksOfAccessPortsAreTold(t *testing.T) {
	access, trunk := PortRef{Switch: 1, Port: 1}, PortRef{Switch: 2, Port: 1}
	n, err := New(Config{PortRoles: map[PortRef]PortRole{access: PortAccess, trunk: PortTrunk}})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	var told []Event
	n.Subscribe(func(e Event) {
		if e.Kind == LinkMisplaced {
			told = append(told, e)
		}
	})
	n.dispatcher.linkChanges([]discovery.Change{{Kind: discovery.LinkUp, Link: Link{From: trunk, To: PortRef{Switch: 3, Port: 1}}}})
	if len(told) != 0 {
		t.Errorf("told of a trunk: %+v", told)
	}
	n.dispatcher.linkChanges([]discovery.Change{{Kind: discovery.LinkUp, Link: Link{From: trunk, To: access}}})
	if len(told) != 1 || told[0].Port != access || !strings.Contains(told[0].Reason, "access") {
		t.Errorf("told: %+v", told)
	}
}

// TestHostsBehindPortsByRole checks how many hosts may be behind a port of each role.
func TestHostsBehindPortsByRole(t *testing.T) {
	access, uplink := PortRef{Switch: 1, Port: 1}, PortRef{Switch: 1, Port: 2}
	n, err := New(Config{PortRoles: map[PortRef]PortRole{access: PortAccess, uplink: PortUplink}, AccessHosts: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for _, at := range []PortRef{access, uplink} {
		n.links.PortUp(at, [6]byte{2, 1, 1, 1, 1, byte(at.Port)}, time.Now().Add(-time.Hour))
	}
	n.links.Tick(time.Now())
	for i := range 100 {
		for _, at := range []PortRef{access, uplink} {
			mac := [6]byte{2, byte(at.Port), 0, 0, 0, byte(i)}
			for k := range 2 {
				n.hosts.Learn(&packet.Headers{EthSrc: mac}, at, time.Now().Add(time.Duration(k)*2*time.Second))
			}
		}
	}
	at := map[PortRef]int{}
	for _, h := range n.Hosts() {
		at[h.At]++
	}
	if at[access] != 3 || at[uplink] != 100 {
		t.Errorf("hosts by port: %v", at)
	}
}
