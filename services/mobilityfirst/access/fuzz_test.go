package access

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// FuzzFrames checks that, whatever frames a host sends, the router's memory for it is counted and
// bounded, and its answers are valid frames. Each step of the input is an operation, a hop ID, a
// number and the size of a payload, one byte each, and then the payload.
func FuzzFrames(f *testing.F) {
	const csyn, data, raw, later = 0, 1, 2, 3
	h := frame.RoutingHeader{Source: frame.Address{GUID: guidOf(1)}, Destination: frame.Address{GUID: nameOf(2)}, ChunkSize: 3}
	chunk, err := h.AppendTo(nil)
	if err != nil {
		f.Fatal(err)
	}
	chunk = append((&frame.TransportHeader{Size: 3, Packets: 1}).AppendTo(chunk), "abc"...)
	step := func(b []byte, op, hop, n byte, payload []byte) []byte {
		return append(append(b, op, hop, n, byte(len(payload))), payload...)
	}
	half := len(chunk) / 2
	whole := step(step(nil, csyn, 1, 1, nil), data, 1, 0, chunk)
	f.Add(step(whole, csyn, 1, 1, nil))
	f.Add(step(step(step(step(nil, csyn, 1, 2, nil), data, 1, 1, chunk[half:]), later, 0, 4, nil), data, 1, 0, chunk[:half]))
	f.Add(step(step(nil, csyn, 1, 200, nil), later, 0, 60, nil))
	f.Add(step(nil, raw, 0, 0, (&frame.Deassociate{Entity: guidOf(1).Short()}).AppendTo(nil)))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, g := alone(t)
		at, now := place{&link{router: r}, macOf(1)}, time.Now()
		tell := func(payload []byte) {
			answer := r.handle(at, mtu, payload, now)
			if answer == nil {
				return
			}
			if _, err := frame.Parse(answer.AppendTo(nil)); err != nil {
				t.Fatalf("the answer to %x: %v", payload, err)
			}
		}
		tell((&frame.Associate{Client: guidOf(1).Short()}).AppendTo(nil))
		for len(b) >= 4 {
			op, hop, n, rest := b[0]%4, uint32(b[1]), uint32(b[2]), b[4:]
			payload := rest[:min(int(b[3]), len(rest))]
			b = rest[len(payload):]
			switch op {
			case csyn:
				tell((&frame.CSYN{Hop: hop, Packets: n}).AppendTo(nil))
			case data:
				tell((&frame.Data{Hop: hop, Sequence: n, Payload: payload}).AppendTo(nil))
			case raw:
				tell(payload)
			case later:
				now = now.Add(time.Duration(n) * time.Second)
				g.expire(now)
			}
			if charged, kept := g.charged(); g.heldBytes != charged || g.keptChunks != kept || charged > r.Memory || len(g.reassemblies) > maxReassemblies {
				t.Fatalf("%d bytes of %d chunks are counted, there are %d of %d and %d incomplete ones", g.heldBytes, g.keptChunks, charged, kept, len(g.reassemblies))
			}
		}
	})
}
