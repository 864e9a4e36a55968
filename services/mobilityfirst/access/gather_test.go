package access

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// charged adds up the memory of a host's chunks, and counts the complete ones.
func (g *guest) charged() (charge, kept int) {
	for _, f := range g.flows {
		for _, k := range f.queue {
			charge += k.charge()
			kept++
		}
	}
	for _, x := range g.reassemblies {
		charge += x.charge
	}
	return charge, kept
}

// Whatever happens to a host's frames, each of its chunks is stored once and unchanged exactly when
// all bits of a CACK are set, and the memory that is counted for it is correct.
func TestCustody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, err := New(Options{Hosts: []Host{{GUID: guidOf(1), Key: keyOf(1)}}, Memory: MinMemory, Keep: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		g, now, at := r.all[0], time.Now(), place{&link{router: r}, macOf(1)}
		r.handle(at, mtu, (&frame.Associate{Client: guidOf(1).Short()}).AppendTo(nil), now)
		type sent struct {
			csyn  frame.CSYN
			parts [][]byte
			acked bool
		}
		const size = 70 // of a part
		all := make([]sent, rapid.IntRange(1, 5).Draw(t, "chunks"))
		for i := range all {
			h := frame.RoutingHeader{Source: frame.Address{GUID: guidOf(1)}, Destination: frame.Address{GUID: nameOf(byte(2 + i%2))}}
			payload := strconv.Itoa(i) + string(make([]byte, rapid.IntRange(0, 500).Draw(t, "payload")))
			h.ChunkSize = uint32(len(payload))
			b, err := h.AppendTo(nil)
			if err != nil {
				t.Fatal(err)
			}
			b = append((&frame.TransportHeader{}).AppendTo(b), payload...)
			all[i].parts = slices.Collect(slices.Chunk(b, size))
			all[i].csyn = frame.CSYN{Hop: uint32(i), Packets: uint32(len(all[i].parts))}
		}
		kept := func() int {
			charge, n := g.charged()
			if g.heldBytes != charge || g.keptChunks != n || g.heldBytes > r.Memory {
				t.Fatalf("%d bytes of %d chunks are counted, there are %d of %d", g.heldBytes, g.keptChunks, charge, n)
			}
			return n
		}
		tell := func(x *sent, f frame.Frame) {
			before := kept()
			c, _ := r.handle(at, mtu, f.AppendTo(nil), now).(*frame.CACK)
			if c == nil {
				if kept() != before {
					t.Fatal("a chunk is kept, and not acknowledged")
				}
				return
			}
			whole := true
			for n := range x.csyn.Packets {
				whole = whole && c.Received.Has(n)
			}
			if took := kept() - before; whole && took != 1 && !x.acked || took != 0 && (!whole || x.acked) {
				t.Fatalf("%d chunks are kept more, acknowledged: %v, before: %v", took, whole, x.acked)
			}
			x.acked = x.acked || whole
		}
		for range rapid.IntRange(0, 60).Draw(t, "frames") {
			x := &all[rapid.IntRange(0, len(all)-1).Draw(t, "chunk")]
			if n := rapid.IntRange(-1, len(x.parts)-1).Draw(t, "part"); n < 0 {
				tell(x, &x.csyn)
			} else {
				tell(x, &frame.Data{Hop: x.csyn.Hop, Sequence: uint32(n), Payload: x.parts[n]})
			}
			if now = now.Add(finishedLifetime / 61); rapid.IntRange(0, 20).Draw(t, "sweep") == 0 {
				g.expire(now)
			}
		}
		for i := range all { // what is lost is sent again
			x := &all[i]
			tell(x, &x.csyn)
			for n := range x.parts {
				tell(x, &frame.Data{Hop: x.csyn.Hop, Sequence: uint32(n), Payload: x.parts[n]})
			}
			if tell(x, &x.csyn); !x.acked {
				t.Fatalf("chunk %d is not taken", i)
			}
		}
		if n := kept(); n != len(all) {
			t.Fatalf("%d of %d chunks are kept", n, len(all))
		}
	})
}
