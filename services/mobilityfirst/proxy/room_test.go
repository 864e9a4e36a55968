package proxy

import (
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// Connections that carry no data do not keep all places: once they are idle for a while, they give
// way to new ones, and those that carry data stay.
func TestIdleConnectionsGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Options{})
		defer p.tasks.Stop()
		good := connKey{frame.GUID{2}, 1}
		used, err := p.add(good, netip.Addr{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name := range byte(100) {
			for n := range uint64(2 * MaxConnectionsPerName) {
				if _, err := p.add(connKey{frame.GUID{1, name}, n}, netip.Addr{}, nil); err != nil {
					break
				}
			}
		}
		if len(p.conns) != MaxConnections {
			t.Fatalf("%d connections are open, want %d", len(p.conns), MaxConnections)
		}
		if _, err := p.add(connKey{frame.GUID{3}, 1}, netip.Addr{}, nil); err == nil {
			t.Error("a connection gave way that was not idle")
		}
		pause.For(replaceableAfter, "the connections become idle")
		used.handle(message{kind: kindData, number: 1, body: []byte{1}})
		for n := range uint64(16) {
			if _, err := p.add(connKey{frame.GUID{3}, n}, netip.Addr{}, nil); err != nil {
				t.Fatalf("connection %d beside idle ones: %v", n, err)
			}
		}
		if len(p.conns) != MaxConnections || p.conns[good] != used {
			t.Errorf("%d connections are open, and the used one is %v; want %d, with it", len(p.conns), p.conns[good], MaxConnections)
		}
		if n := p.peers[frame.GUID{1, 3}].conns; n != MaxConnectionsPerName/8 {
			t.Errorf("a name with few connections has %d, want %d", n, MaxConnectionsPerName/8)
		}
	})
}

// One client of a proxy that listens leaves places to others.
func TestConnectionsOfOneClient(t *testing.T) {
	p := New(Options{To: frame.GUID{1}})
	defer p.tasks.Stop()
	number := uint64(0)
	open := func(client string) (n int) {
		for ; ; n++ {
			number++
			if _, err := p.add(connKey{p.To, number}, netip.MustParseAddr(client), nil); err != nil {
				return n
			}
		}
	}
	if n := open("192.0.2.1"); n != MaxConnectionsPerClient {
		t.Errorf("%d connections of one client, want %d", n, MaxConnectionsPerClient)
	}
	if n := open("192.0.2.2"); n != MaxConnectionsPerName-MaxConnectionsPerClient {
		t.Errorf("%d connections of another client, want %d", n, MaxConnectionsPerName-MaxConnectionsPerClient)
	}
}
