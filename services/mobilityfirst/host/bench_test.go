package host

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/internal/nettest"
)

// BenchmarkChunks measures how fast chunks are sent over a cable between two hosts in this process.
func BenchmarkChunks(b *testing.B) {
	for _, mtu := range []int{1500, 9000} {
		for _, size := range []int{1000, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("mtu=%d/size=%d", mtu, size), func(b *testing.B) { benchmarkChunks(b, mtu, size) })
		}
	}
}

func benchmarkChunks(b *testing.B, mtu, size int) {
	nettest.Namespace(b)
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a", TxQLen: 1000, MTU: mtu}, PeerName: "b", PeerMTU: uint32(mtu)}
	if err := netlink.LinkAdd(veth); err != nil {
		b.Fatal(err)
	}
	var ends []*Endpoint
	for _, name := range []string{"a", "b"} {
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(link)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for n, name := range []string{"a", "b"} {
		i, err := OpenInterface(name) // here, in this namespace
		if err != nil {
			b.Fatal(err)
		}
		h := New(Options{Interfaces: []string{name}, Open: func(string) (*Interface, error) {
			if i == nil {
				return nil, net.ErrClosed
			}
			defer func() { i = nil }()
			return i, nil
		}})
		all.Go(func() { h.Run(ctx) })
		e, err := h.Attach(newKey(byte(n + 1)))
		if err != nil {
			b.Fatal(err)
		}
		ends = append(ends, e)
	}
	b.SetBytes(int64(size))
	payload := make([]byte, size)
	b.ResetTimer()
	all.Go(func() {
		for range b.N {
			if err := ends[0].Send(ctx, ends[1].Name, 0, payload, func(error) {}); err != nil {
				b.Error(err)
				return
			}
		}
	})
	for range b.N {
		r, err := ends[1].Receive(ctx)
		if err != nil {
			b.Fatal(err)
		}
		r.Take()
	}
	b.StopTimer()
	c := ends[0].host.Counters()
	b.ReportMetric(float64(c.Again)/float64(max(c.Frames, 1)), "again/frame")
}
