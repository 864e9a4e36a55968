package cinema

import (
	"fmt"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// BenchmarkChange measures what a viewer's change of channel costs the controller, without the
// switches and the HTTP request: the request for the new channel beside the old one, and the
// record that ends the old one. Other viewers watch one of the two.
func BenchmarkChange(b *testing.B) {
	for _, others := range []int{0, 95, 690} {
		for _, atOnce := range []int{1, 50} {
			b.Run(fmt.Sprintf("others=%d/at-once=%d", others, atOnce), func(b *testing.B) { benchmarkChange(b, others, atOnce) })
		}
	}
}

func benchmarkChange(b *testing.B, others, atOnce int) {
	mostViewers = 1000
	x := newBench(b)
	for i := range others {
		tells(x.east, id(1000+i), uint16(7000+i), "a")
		wants(b, x.service, x.east, 1000+i, "a")
	}
	change := changing(b, x.service, x.east, atOnce)
	b.ResetTimer()
	change()
}

func wants(b *testing.B, s *Service, h *fakeEgress, n int, channels ...string) *gatewayapi.Granted {
	out, err := s.changeViewer(b.Context(), &gatewayapi.Wanted{Gateway: h.name, Viewer: id(n), Port: uint16(6000 + n), Channels: channels})
	if err != nil {
		b.Error(err)
	}
	return out
}

// changing makes some viewers change continuously, b.N times in all.
func changing(b *testing.B, s *Service, h *fakeEgress, atOnce int) func() {
	for i := range atOnce {
		tells(h, id(i), uint16(6000+i), "a")
	}
	return func() {
		var all sync.WaitGroup
		for viewer := range atOnce {
			all.Go(func() {
				now, next := "a", "b"
				for range b.N / atOnce {
					out := wants(b, s, h, viewer, next, now)
					record := gatewayapi.ViewerEvent{Viewer: id(viewer), What: "changed", Channel: next, Grant: out.Number}
					s.endOldChannels(h.name, []gatewayapi.ViewerEvent{record})
					now, next = next, now
				}
			})
		}
		all.Wait()
		if err := unwritten(s.reconcile(b.Context(), []string{"a", "b"})); err != nil {
			b.Error(err)
		}
	}
}

// BenchmarkChangeInNetwork measures the same with a ledger, and with switches that confirm by
// TCP.
func BenchmarkChangeInNetwork(b *testing.B) {
	for _, atOnce := range []int{1, 50} {
		b.Run(fmt.Sprintf("at-once=%d", atOnce), func(b *testing.B) {
			mostViewers = 1000
			x := newWired(b)
			defer x.start(1)()
			x.register()
			change := changing(b, x.service, x.halls[0], atOnce)
			b.ResetTimer()
			change()
		})
	}
}
