package host

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/internal/nettest"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
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
	ends := cabled(b, mtu)
	ctx := b.Context()
	var from, to *Endpoint
	for n, e := range []**Endpoint{&from, &to} {
		var err error
		if *e, err = ends[n].Attach(newKey(byte(n + 1))); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(size))
	payload := make([]byte, size)
	b.ResetTimer()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		for range b.N {
			if err := from.Send(ctx, to.Name, 0, payload, func(error) {}); err != nil {
				b.Error(err)
				return
			}
		}
	})
	for range b.N {
		r, err := to.Receive(ctx)
		if err != nil {
			b.Fatal(err)
		}
		r.Take()
	}
	b.StopTimer()
	c := ends[0].Counters()
	b.ReportMetric(float64(c.Again)/float64(max(c.Frames, 1)), "again/frame")
}

// BenchmarkApplications measures how fast two applications of one host send chunks to two of
// another, over a cable between the hosts and the Unix sockets of both.
func BenchmarkApplications(b *testing.B) {
	for _, size := range []int{1000, 1_000_000} {
		b.Run(fmt.Sprint("size=", size), func(b *testing.B) { benchmarkApplications(b, size) })
	}
}

func benchmarkApplications(b *testing.B, size int) {
	const pairs = 2
	ends := cabled(b, 1500)
	var sockets [2]string
	for n, h := range ends {
		sockets[n] = filepath.Join(b.TempDir(), "mf.sock")
		l, err := net.Listen("unix", sockets[n])
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		served := make(chan error, 1)
		go func() { served <- h.Serve(ctx, l) }()
		b.Cleanup(func() {
			cancel()
			if err := <-served; err != nil {
				b.Error(err)
			}
		})
	}
	var clients [2][pairs]*hostapi.Client
	for n := range clients {
		for i := range pairs {
			c, err := hostapi.Open(b.Context(), sockets[n], newKey(byte(1+n*pairs+i)))
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			clients[n][i] = c
		}
	}
	b.SetBytes(int64(pairs * size))
	b.ResetTimer()
	var all sync.WaitGroup
	for i := range pairs {
		from, to := clients[0][i], clients[1][i]
		all.Go(func() {
			payload := make([]byte, size)
			for range b.N {
				if err := from.Send(b.Context(), to.Name, 0, payload, func(error) {}); err != nil {
					b.Error(err)
					return
				}
			}
		})
		all.Go(func() {
			for range b.N {
				x, err := to.Receive(b.Context())
				if err == nil {
					err = to.Take(x)
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// cabled runs two hosts at the ends of a cable in a namespace of their own until the benchmark
// ends.
func cabled(b *testing.B, mtu int) (ends [2]*Host) {
	nettest.Namespace(b)
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a", TxQLen: 1000, MTU: mtu}, PeerName: "b", PeerMTU: uint32(mtu)}
	if err := netlink.LinkAdd(veth); err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(link)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	var all sync.WaitGroup
	b.Cleanup(func() { cancel(); all.Wait() })
	for n, name := range []string{"a", "b"} {
		i, err := OpenInterface(name) // here, in this namespace
		if err != nil {
			b.Fatal(err)
		}
		ends[n] = New(Options{Interfaces: []string{name}, Open: func(string) (*Interface, error) {
			if i == nil {
				return nil, net.ErrClosed
			}
			defer func() { i = nil }()
			return i, nil
		}})
		all.Go(func() { ends[n].Run(ctx) })
	}
	return ends
}
