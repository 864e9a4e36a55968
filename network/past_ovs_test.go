//go:build !race

package network_test

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/stats"
)

// TestLossOfABurstIsOver: what a burst has lost in the queue of a link is told as that, with
// when it was, and no path request takes it for what the link loses.
func TestLossOfABurstIsOver(t *testing.T) {
	l := lab.New(t, lab.Line("netpast", 2, delayline.Params{Rate: 8e6, Queue: 96 << 10, Delay: 5 * time.Millisecond, Loss: 0.0002}))
	const interval = time.Second
	n, _ := run(t, l, network.Config{StatsInterval: interval})
	ready(t, n, 2, 1, 2)
	ping(t, l, "h1", "h2")
	from := place(t, l, "s1", "s1-s2")
	link := func() network.Link {
		k, ok := n.Topology().LinkFrom(from)
		if !ok {
			t.Fatalf("there is no link from %v", from)
		}
		return k
	}
	began := time.Now()
	sent := flood(t, l.Host("h1"), l.Host("h2"), 8000, 800*time.Millisecond)
	var loss stats.Loss
	eventually(t, "the queue's loss to be told, and three readings after the last of it", func() bool {
		loss = n.Traffic().Link(link()).Loss
		return loss.Queue > 0.1 && loss.At.Sub(loss.QueueAt) > 3*interval
	})
	seen := link().Loss
	t.Logf("of %d packets the queue lost %.1f %% until %v after their beginning; the path loses %.2f %% of %d packets", sent, 100*loss.Queue, loss.QueueAt.Sub(began), 100*seen, loss.Packets)
	if seen > 0.01 || loss.QueueAt.Before(began) || loss.Packets == 0 || loss.Packets >= uint64(sent) {
		t.Errorf("path requests see a loss of %.1f %% on a link that loses 0.02 %%: %+v", 100*seen, loss)
	}
}
