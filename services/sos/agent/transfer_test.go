package agent

import (
	"fmt"
	"testing"

	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// result holds what one end of a transfer has seen.
type result struct {
	sum [32]byte
	n   int64
	err error
}

// exchange sends in both directions at once, ends both by FIN, and compares checksums.
func exchange(t *testing.T, f *flow, up, down int64) {
	t.Helper()
	atServer, atClient := make(chan result, 1), make(chan result, 1)
	sentUp, sentDown := make(chan result, 1), make(chan result, 1)
	read := func(c interface{ Read([]byte) (int, error) }, out chan result) {
		s, n, err := sum(c)
		out <- result{s, n, err}
	}
	write := func(c interface {
		Write([]byte) (int, error)
		CloseWrite() error
	}, n int64, seed uint64, out chan result,
	) {
		s, err := sendAll(c, n, seed)
		if err == nil {
			err = c.CloseWrite()
		}
		out <- result{s, n, err}
	}
	go read(f.server, atServer)
	go read(f.client, atClient)
	go write(f.client, up, 1, sentUp)
	go write(f.server, down, 2, sentDown)
	for _, d := range []struct {
		name      string
		sent, got result
	}{{"up", <-sentUp, <-atServer}, {"down", <-sentDown, <-atClient}} {
		if d.sent.err != nil || d.got.err != nil {
			t.Errorf("%s: sending: %v, receiving: %v", d.name, d.sent.err, d.got.err)
		}
		if d.sent.n != d.got.n || d.sent.sum != d.got.sum {
			t.Errorf("%s: sent %d bytes, got %d, sums equal: %v", d.name, d.sent.n, d.got.n, d.sent.sum == d.got.sum)
		}
	}
}

func TestTransfer(t *testing.T) {
	p := newPair(t, nil)
	for _, size := range []struct{ up, down int64 }{{0, 0}, {1, 0}, {0, 1}, {1, 1}, {100_000, 100}, {64 << 20, 0}, {0, 64 << 20}, {32 << 20, 32 << 20}} {
		for _, n := range []int{1, 4} {
			t.Run(fmt.Sprintf("up=%d/down=%d/p=%d", size.up, size.down, n), func(t *testing.T) {
				f := p.open(agentapi.Params{Connections: n})
				exchange(t, f, size.up, size.down)
				for _, a := range []*Agent{p.x, p.y} {
					r := f.ended(a)
					if r.Reason != agentapi.ReasonClosed || int64(r.Counters.BytesUp) != size.up || int64(r.Counters.BytesDown) != size.down {
						t.Errorf("record at %v: %+v", a.cfg.DataAddr, r)
					}
				}
			})
		}
	}
}
