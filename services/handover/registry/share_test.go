package registry_test

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// Unregistered devices have at most half of a pool at one port, by offers and leases together; the
// other half is left to others.
func TestShareOfAPort(t *testing.T) {
	here, there := network.PortRef{Switch: 1, Port: 1}, network.PortRef{Switch: 2, Port: 1}
	for _, c := range []struct {
		name string
		// have prepares the requests at the port in a pool of 6; want holds the answers to one
		// more device at both ports.
		have              func(*bench)
		wantHere, wantOut error
	}{
		{"nothing", func(*bench) {}, nil, nil},
		{"two offers", func(b *bench) { b.strangers(2, here, false) }, nil, nil},
		{"three offers", func(b *bench) { b.strangers(3, here, false) }, registry.ErrExhausted, nil},
		{"three leases", func(b *bench) { b.strangers(3, here, true) }, registry.ErrExhausted, nil},
		{"offers that nobody took", func(b *bench) {
			b.strangers(3, here, false)
			b.clock.add(31 * time.Second)
		}, nil, nil},
		{"leases that were given back", func(b *bench) {
			for _, id := range b.strangers(3, here, true) {
				b.must(b.Release(b.ctx, id))
			}
			b.clock.add(11 * time.Second)
		}, nil, nil},
		{"one that moved away", func(b *bench) {
			id := b.strangers(3, here, true)[0]
			b.must(b.SetAttachment(b.ctx, id, &registry.Attachment{At: there, MAC: mac(9)}))
		}, nil, nil},
		{"registered devices", func(b *bench) {
			for n := range byte(3) {
				b.device(fmt.Sprint("d", n), n)
				b.grant(fmt.Sprint("d", n))
			}
		}, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			b.pool(func(p *registry.Pool) { p.Learn, p.Last = true, ip(15) })
			c.have(b)
			for at, want := range map[network.PortRef]error{here: c.wantHere, there: c.wantOut} {
				d, err := b.Learn(mac(200 + byte(at.Switch)))
				b.must(err)
				if _, err := b.Offer(d.ID, netip.Addr{}, at); want == nil {
					b.must(err)
				} else {
					b.fails(err, want)
				}
			}
		})
	}
}

// A device keeps its address at a port whose share is used up.
func TestShareIsNotTakenBack(t *testing.T) {
	b := newBench(t)
	b.pool(func(p *registry.Pool) { p.Learn, p.Last = true, ip(15) })
	at := network.PortRef{Switch: 1, Port: 1}
	for _, leased := range []bool{false, true} {
		for _, id := range b.strangers(3, at, leased) {
			b.offered(id, at)
		}
	}
	b.restart()
	for _, l := range b.Leases() {
		b.offered(l.Device, at)
	}
	d, err := b.Learn(mac(99))
	b.must(err)
	_, err = b.Offer(d.ID, netip.Addr{}, at)
	b.fails(err, registry.ErrExhausted)
}

// strangers makes unregistered devices take addresses at a port.
func (b *bench) strangers(n byte, at network.PortRef, leased bool) (ids []string) {
	b.t.Helper()
	for i := range n {
		d, err := b.Learn(mac(100 + i))
		b.must(err)
		ip := b.offered(d.ID, at)
		if leased {
			_, err = b.Grant(b.ctx, d.ID, registry.Claim{IP: ip, Attachment: &registry.Attachment{At: at, MAC: mac(100 + i)}})
			b.must(err)
		}
		ids = append(ids, d.ID)
	}
	return ids
}

func (b *bench) offered(id string, at network.PortRef) netip.Addr {
	b.t.Helper()
	ip, err := b.Offer(id, netip.Addr{}, at)
	b.must(err)
	return ip
}

// Of many devices that ask concurrently, no more get an address than one after the other.
func TestShareOfManyAtOnce(t *testing.T) {
	b := newBench(t)
	b.pool(func(p *registry.Pool) { p.Learn, p.Last = true, ip(15) })
	at := network.PortRef{Switch: 1, Port: 1}
	var given atomic.Int32
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for i := range byte(100) {
		d, err := b.Learn(mac(100 + i))
		b.must(err)
		wg.Go(func() {
			<-begin
			if _, err := b.Offer(d.ID, netip.Addr{}, at); err == nil {
				given.Add(1)
			} else if !errors.Is(err, registry.ErrExhausted) {
				t.Error(err)
			}
		})
	}
	close(begin)
	wg.Wait()
	if n := given.Load(); n != 3 {
		t.Errorf("%d addresses of 6 for one port, want 3", n)
	}
}
