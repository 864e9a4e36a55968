package registry_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// Until a lease is written it is only reserved: nobody else gets the address, and the device keeps
// what it had.
func TestAReservedLeaseIsNotYetOne(t *testing.T) {
	b := newBench(t)
	b.pool(nil)
	b.device("car", 1)
	b.device("van", 2)
	l := b.grant("car")
	there := registry.Attachment{At: network.PortRef{Switch: 1, Port: 2}, MAC: mac(1)}
	v, err := b.Reserve("car", registry.Claim{IP: l.IP, Attachment: &there})
	b.must(err)
	if now, _ := b.Lease("car"); now.Attachment != nil || v.Lease.Attachment == nil {
		t.Fatalf("has %+v, will have %+v", now, v.Lease)
	}
	other, err := b.Reserve("van", registry.Claim{IP: ip(12)})
	b.must(err)
	b.device("bus", 3)
	_, err = b.Grant(b.ctx, "bus", registry.Claim{IP: ip(12)})
	b.fails(err, registry.ErrTaken)
	b.must(v.Commit(b.ctx))
	if now, _ := b.Lease("car"); now.Attachment == nil || now.Attachment.At != there.At {
		t.Fatalf("has %+v", now)
	}
	b.store.fail(true, false)
	b.fails(other.Commit(b.ctx), errStore)
	if now, ok := b.Lease("van"); ok {
		t.Fatalf("has %+v", now)
	}
	b.store.fail(false, false)
	b.must(b.Release(b.ctx, "car")) // the device can be changed again
	b.restart()
	if now, ok := b.Lease("van"); ok {
		t.Fatalf("after a restart it has %+v", now)
	}
}

func TestARestartChangesNothing(t *testing.T) {
	b := newBench(t)
	b.must(b.PutClass(b.ctx, registry.Class{Name: "cars", Policy: registry.PolicySeamless, Ports: []network.PortRef{{Switch: 1, Port: 2}}}))
	b.pool(func(p *registry.Pool) { p.Class = "cars"; p.DNS = []netip.Addr{ip(1)} })
	b.must(b.PutDevice(b.ctx, registry.Device{ID: "car", MACs: []openflow.MAC{mac(1), mac(2)}, Class: "cars", Key: make([]byte, 32)}))
	b.device("van", 3)
	b.grant("van")
	b.must(b.Release(b.ctx, "van"))
	l := b.grant("car")
	_, err := b.Grant(b.ctx, "car", registry.Claim{
		IP: l.IP, ClientID: []byte{1, 2}, MAC: mac(1), Signed: start.Add(3 * time.Nanosecond),
		Attachment: &registry.Attachment{At: network.PortRef{Switch: 1, Port: 2}, MAC: mac(2)},
	})
	b.must(err)
	before := snapshot(b)
	b.restart()
	if after := snapshot(b); before != after {
		t.Fatalf("before:\n%s\nafter:\n%s", before, after)
	}
	if s := b.Signed("car"); !s.Equal(start.Add(3)) {
		t.Fatalf("newest signature %v", s)
	}
	if got, err := b.Offer("van", netip.Addr{}, network.PortRef{}); err != nil || got != ip(10) {
		t.Fatalf("van is offered %v, %v", got, err)
	}
}

func TestAnAttachmentIsWrittenOnce(t *testing.T) {
	b := newBench(t)
	b.pool(nil)
	b.device("car", 1)
	at := registry.Attachment{At: network.PortRef{Switch: 1, Port: 2}, MAC: mac(1)}
	b.fails(b.SetAttachment(b.ctx, "car", &at), registry.ErrNoLease)
	b.must(b.SetAttachment(b.ctx, "car", nil))
	l := b.grant("car")
	writes := b.store.writes
	for range 3 {
		b.must(b.SetAttachment(b.ctx, "car", &at))
		b.clock.add(time.Second)
		_, err := b.Grant(b.ctx, "car", registry.Claim{IP: l.IP, Attachment: &at})
		b.must(err)
	}
	if n := b.store.writes - writes; n != 4 {
		t.Fatalf("%d writes, want one for the attachment and three for the grants", n)
	}
	if l, _ := b.Lease("car"); l.Attachment.At != at.At || !l.Attachment.Since.Equal(start) {
		t.Fatalf("attached %+v", l.Attachment)
	}
	b.must(b.SetAttachment(b.ctx, "car", nil))
	if l, _ := b.Lease("car"); l.Attachment != nil || l.Released {
		t.Fatalf("detached %+v", l)
	}
}

// The place where a device was before it asked by another interface is known until it asks again,
// also after a restart. An interface that moves has left its old place.
func TestWhereADeviceMayStillBe(t *testing.T) {
	b := newBench(t)
	b.pool(nil)
	b.device("car", 1, 2)
	first := registry.Attachment{At: network.PortRef{Switch: 1, Port: 2}, MAC: mac(1)}
	second := registry.Attachment{At: network.PortRef{Switch: 3, Port: 2}, MAC: mac(2)}
	third := registry.Attachment{At: network.PortRef{Switch: 4, Port: 2}, MAC: mac(2)}
	address := b.grant("car").IP
	for _, c := range []struct {
		at   registry.Attachment
		left network.PortRef
	}{{first, network.PortRef{}}, {second, first.At}, {second, network.PortRef{}}, {third, network.PortRef{}}, {first, third.At}} {
		if _, err := b.Grant(b.ctx, "car", registry.Claim{IP: address, Attachment: &c.at}); err != nil {
			t.Fatal(err)
		}
		b.restart()
		l, _ := b.Lease("car")
		var left network.PortRef
		if l.Left != nil {
			left = l.Left.At
		}
		if left != c.left || l.Attachment.At != c.at.At {
			t.Errorf("at %v: attached to %v, may still be at %v, want %v", c.at.At, l.Attachment.At, left, c.left)
		}
	}
	b.must(b.SetAttachment(b.ctx, "car", nil))
	if l, _ := b.Lease("car"); l.Left != nil {
		t.Errorf("it is nowhere, and may still be at %v", l.Left.At)
	}
}

func TestAwayFromHomeALeaseDoesNotEnd(t *testing.T) {
	b := newBench(t)
	b.pool(nil)
	b.device("car", 1)
	l := b.grant("car")
	b.must(b.SetAttachment(b.ctx, "car", &registry.Attachment{At: network.PortRef{Switch: 1, Port: 9}, Peer: "east"}))
	b.clock.add(24 * time.Hour)
	if ended := b.expire(); len(ended) != 0 {
		t.Fatalf("ended: %+v", ended)
	}
	b.restart()
	b.must(b.SetAttachment(b.ctx, "car", nil))
	b.clock.add(59 * time.Second) // the device may have renewed there just now
	if ended := b.expire(); len(ended) != 0 {
		t.Fatalf("ended: %+v", ended)
	}
	b.clock.add(time.Second)
	if ended := b.expire(); len(ended) != 1 || ended[0].IP != l.IP {
		t.Fatalf("ended: %+v", ended)
	}
}
