package wire

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// packet is a chunk in flight on a simulated connection.
type packet struct {
	seq  uint64
	left int // pieces that have not arrived
	rx   *arrival
}

// arrival is a reception in the simulation.
type arrival struct {
	seq uint64
	got int
}

// link is a simulated connection: chunks in order, acknowledged by count.
type link struct {
	flight      []*packet
	unconfirmed Unconfirmed[uint64]
	received    uint64
	acked       uint64
}

// TestDirection tests the protocol of one direction against a model. Connections deliver in pieces
// and die at any time, on one side first or on both; acknowledgements are late or lost with their
// connection. Every chunk must arrive once, in order.
func TestDirection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const pieces = 3
		total := uint64(rapid.IntRange(1, 40).Draw(t, "chunks"))
		order := NewOrdered[*arrival](1 << 20)
		links := map[int]*link{}
		names := 0
		var again []uint64
		next := uint64(0)
		passed := 0            // pieces of the first chunk that the end host has received
		var delivered []uint64 // pieces in the order in which the end host receives them

		open := func() {
			if len(links) < 4 {
				links[names] = &link{}
				names++
			}
		}
		pump := func() {
			for {
				r, complete, ok := order.Head()
				if !ok {
					return
				}
				for ; passed < r.got; passed++ { // skips what an earlier reception has passed on
					delivered = append(delivered, r.seq)
				}
				if !complete {
					return
				}
				if passed != pieces {
					t.Fatalf("chunk %d is complete with %d pieces", r.seq, passed)
				}
				order.Advance()
				passed = 0
			}
		}
		pick := func(label string) *link {
			keys := make([]int, 0, len(links))
			for k := range links {
				keys = append(keys, k)
			}
			if len(keys) == 0 {
				return nil
			}
			slices.Sort(keys)
			return links[rapid.SampledFrom(keys).Draw(t, label)]
		}
		send := func(l *link) {
			if l == nil {
				return
			}
			var seq uint64
			switch {
			case len(again) > 0:
				seq, again = again[0], again[1:]
			case next < total:
				seq = next
				next++
			default:
				return
			}
			l.unconfirmed.Push(seq)
			l.flight = append(l.flight, &packet{seq: seq, left: pieces})
		}
		arrive := func(l *link) {
			if l == nil || len(l.flight) == 0 {
				return
			}
			p := l.flight[0]
			if p.left == pieces {
				r := &arrival{seq: p.seq}
				switch decision, _ := order.Begin(p.seq, r); decision {
				case Take, Replace:
					p.rx = r
				case Reject:
					t.Fatalf("chunk %d rejected", p.seq)
				}
			}
			p.left--
			if p.rx != nil {
				p.rx.got++
				if p.left == 0 {
					order.Complete(p.seq, p.rx)
				}
			}
			if p.left == 0 {
				l.flight = l.flight[1:]
				l.received++
			}
			pump()
		}
		ack := func(l *link) {
			if l == nil {
				return
			}
			l.acked = uint64(rapid.IntRange(int(l.acked), int(l.received)).Draw(t, "ack"))
			if _, ok := l.unconfirmed.Confirm(l.acked); !ok {
				t.Fatalf("ack %d of %d refused", l.acked, l.received)
			}
		}
		receiverLoses := func(l *link) {
			for _, p := range l.flight {
				if p.rx != nil {
					order.Drop(p.seq, p.rx)
				}
			}
			l.flight = nil
		}
		senderLoses := func(l *link) {
			again = append(again, l.unconfirmed.Lost()...)
			SortChunks(again, func(s uint64) uint64 { return s })
		}
		zombies := []*link{} // connections that the sender has lost and the receiver has not yet
		die := func() {
			keys := make([]int, 0, len(links))
			for k := range links {
				keys = append(keys, k)
			}
			if len(keys) == 0 {
				return
			}
			slices.Sort(keys)
			k := rapid.SampledFrom(keys).Draw(t, "dies")
			l := links[k]
			delete(links, k)
			senderLoses(l)
			if rapid.Bool().Draw(t, "receiver knows") {
				receiverLoses(l)
			} else {
				zombies = append(zombies, l)
			}
		}
		open()
		for range rapid.IntRange(0, 300).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				open()
			case 1, 2, 3:
				send(pick("sends"))
			case 4, 5, 6:
				arrive(pick("arrives"))
			case 7:
				ack(pick("acks"))
			case 8:
				die()
			case 9:
				if len(zombies) > 0 {
					z := zombies[0]
					if rapid.Bool().Draw(t, "zombie arrives") {
						arrive(z)
					} else {
						zombies = zombies[1:]
						receiverLoses(z)
					}
				}
			}
		}
		// From now on no connection dies: everything must arrive.
		for _, z := range zombies {
			receiverLoses(z)
		}
		open()
		for l := pick("last"); next < total || len(again) > 0; {
			send(l)
		}
		for _, l := range links {
			for len(l.flight) > 0 {
				arrive(l)
			}
		}
		if order.Next() != total || order.Len() != 0 {
			t.Fatalf("%d of %d chunks passed on, %d wait", order.Next(), total, order.Len())
		}
		if len(delivered) != int(total)*pieces {
			t.Fatalf("%d pieces, want %d", len(delivered), int(total)*pieces)
		}
		for i, s := range delivered {
			if s != uint64(i/pieces) {
				t.Fatalf("piece %d belongs to chunk %d", i, s)
			}
		}
	})
}

func TestConfirmRefuses(t *testing.T) {
	var u Unconfirmed[int]
	u.Push(1)
	u.Push(2)
	if done, ok := u.Confirm(1); !ok || len(done) != 1 || done[0] != 1 {
		t.Errorf("%v %v", done, ok)
	}
	if _, ok := u.Confirm(0); ok {
		t.Error("a count that goes back is accepted")
	}
	if _, ok := u.Confirm(3); ok {
		t.Error("more is confirmed than was sent")
	}
	if lost := u.Lost(); len(lost) != 1 || lost[0] != 2 || u.Len() != 0 {
		t.Errorf("lost %v", lost)
	}
}

func TestOrderedSpan(t *testing.T) {
	o := NewOrdered[int](4)
	if d, _ := o.Begin(4, 0); d != Reject {
		t.Errorf("beyond the span: %v", d)
	}
	if d, _ := o.Begin(3, 0); d != Take {
		t.Errorf("within the span: %v", d)
	}
	if got := o.Drain(); len(got) != 1 || o.Len() != 0 {
		t.Errorf("drained %v", got)
	}
}
