package network_test

import (
	"context"
	"errors"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/networktest"
	"github.com/sluice-net/sluice/openflow"
)

// TestGroupStats checks the counters of an owner's groups and buckets, of which there are more
// than fit into one message. A switch that is not connected is an error.
func TestGroupStats(t *testing.T) {
	n, _ := networktest.Start(t, network.Config{})
	s := fake.NewSwitch(fake.Options{DPID: 1, Ports: 4})
	networktest.Connect(t, n, s, 1)
	o := networktest.Owner(t, n, "svc", network.OwnerOptions{})
	p := networktest.Program(networktest.TCPTo(1, 80, 1))
	const groups = 120
	for i := range uint16(groups) {
		p.Groups = append(p.Groups, network.Group{Switch: 1, ID: o.GroupID(i), Type: openflow.GroupTypeAll, Buckets: []openflow.Bucket{
			openflow.NewBucket(openflow.Output(2)), openflow.NewBucket(openflow.Output(3)),
		}})
	}
	p.Rules[0].Actions = []openflow.Action{openflow.GroupAction(o.GroupID(7))}
	networktest.Apply(t, o, "copies", p, network.ApplyOptions{})
	other := networktest.Owner(t, n, "other", network.OwnerOptions{})
	networktest.Apply(t, other, "copies", network.Program{Groups: []network.Group{{Switch: 1, ID: other.GroupID(1), Type: openflow.GroupTypeAll}}}, network.ApplyOptions{})
	const packets = 3
	for range packets {
		s.Table().Send(1, fake.NewPacket(openflow.EthType(0x0800), openflow.IPProto(6), openflow.TCPDst(80)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), networktest.Timeout)
	defer cancel()
	all, err := o.GroupStats(ctx, 1)
	if err != nil || len(all) != groups {
		t.Fatalf("%d groups, %v", len(all), err)
	}
	for _, g := range all {
		want := uint64(0)
		if g.Group == o.GroupID(7) {
			want = packets
		}
		if g.Packets != want || len(g.Buckets) != 2 || g.Buckets[0].Packets != want || g.Buckets[1].Packets != want {
			t.Errorf("%v, want %d packets", g, want)
		}
	}
	if _, err := o.GroupStats(ctx, 2); !errors.Is(err, network.ErrSwitchDown) {
		t.Errorf("of a switch that is not there: %v", err)
	}
}
