package experiment

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
)

// mobilityMost bounds the median time without chunks to a name when the device moves within a
// domain, and mobilityMostFar the median when the device gets another address.
const mobilityMost, mobilityMostFar = time.Second, 3 * time.Second

// newMobilityHome returns the lab with one domain, whose switches learn addresses.
func newMobilityHome(env *Env, raw *CSV) *mobilityRig {
	o := lab.MobilityOptions{Levels: 2, Radio: accessLine}
	d := o.Domain()
	rig := &mobilityRig{
		peers:    &peersRig{env: env, domain: d, raw: raw, port: peersPort},
		topology: lab.Mobility("mfmobility", o), near: d, far: d,
		networks: []testbed.HandoverNetwork{{Name: "home", Network: d}},
	}
	rig.startHosts = rig.startHome
	return rig
}

// farSocket distinguishes the device's host of names that uses UDP and the name service only.
const farSocket = "far"

// homeMoves returns the moves within the domain: a link that fails while the device has another one,
// and a link that goes down with its address where the device gets another one. Names use a link
// that both hosts share or, if the device gets another address, UDP and the name service.
func (rig *mobilityRig) homeMoves() []mobilityMove {
	link := mobilityMove{
		name: "another link", rig: rig, most: mobilityMost, rate: pulseRate,
		do: func(ctx context.Context) error {
			return rig.peers.lab.SetLinkParams(ctx, accessLink(0), lossy(accessLine))
		},
		undo: func(ctx context.Context) error {
			return rig.peers.lab.SetLinkParams(ctx, accessLink(0), accessLine)
		},
		ways: append([]mobilityWay{{name: "names, by Ethernet", names: true, start: rig.startByEthernet}}, rig.moving()...),
	}
	address := rig.changeLink("another address")
	address.most = mobilityMostFar
	address.ways = append([]mobilityWay{rig.names("names, by UDP and the name service", rig.near.Server, farSocket, 0)}, rig.moving()...)
	link.served = rig.carried(seamlessTCP, seamlessUDP)
	address.served = link.served
	return []mobilityMove{link, address}
}

// startByEthernet starts a conversation between names over the device's first link, which is the
// only one at that time.
func (rig *mobilityRig) startByEthernet(ctx context.Context, o testbed.PeerOptions) (testbed.Peer, error) {
	l := rig.peers.lab
	if err := l.SetLinkParams(ctx, accessLink(1), lossy(accessLine)); err != nil {
		return nil, err
	}
	p, err := testbed.StartNames(ctx, o, rig.socket(rig.near.Gateway), rig.socket(theDevice), 0)
	if failed := l.SetLinkParams(ctx, accessLink(1), accessLine); failed != nil && err == nil {
		p.Stop()
		return nil, failed
	}
	return p, err
}

// startHome starts hosts of names, and a name service at the server. The hosts at the router and on
// the device share links. The one at the server and a second one on the device do not.
func (rig *mobilityRig) startHome(ctx context.Context) error {
	if err := learnAddresses(ctx, rig.peers.lab); err != nil {
		return err
	}
	if err := rig.addresses(ctx); err != nil {
		return err
	}
	names := netip.AddrPortFrom(rig.near.ServerAddr, 5001).String()
	far := []string{"--udp", "5028", "--names", names}
	return errors.Join(
		rig.startProgram(ctx, rig.near.Server, "names", "gnrs", "--listen", names, "--dir", filepath.Join(rig.dir, "names")),
		rig.startHost(ctx, rig.near.Gateway, rig.near.Gateway, "--interface", "eth0"),
		rig.startHost(ctx, theDevice, theDevice, "--interface", "eth0", "--interface", "eth1"),
		rig.startHost(ctx, rig.near.Server, rig.near.Server, far...),
		rig.startHost(ctx, theDevice, farSocket, far...))
}
