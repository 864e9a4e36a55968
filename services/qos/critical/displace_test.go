package critical

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/services/qos/match"
)

// A promise that does not fit any more, because a link has lost capacity, is moved where
// there is room; without another way the youngest give theirs up, and say why.
func TestLostCapacity(t *testing.T) {
	w := newWorld(t)
	w.net.change(func() { w.net.capacity, w.net.dead[[2]int{1, 3}] = 20*mbit, true })
	first := w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
	second := w.placed([2]int{1, 2}, [2]int{4, 2}, 2)
	if first.State != StateAccepted || second.State != StateAccepted {
		t.Fatalf("%+v, %+v", first, second)
	}
	w.net.change(func() { w.net.capacity = 15 * mbit })
	w.relieve(t.Context())
	first, second = w.of([2]int{1, 1}, [2]int{4, 1}, 1), w.of([2]int{1, 2}, [2]int{4, 2}, 2)
	if first.State != StateAccepted || second.State != StateBestEffort {
		t.Fatalf("20 Mbit/s are promised on 15: %+v, %+v", first, second)
	}
	if !strings.Contains(second.Reason, "0000000000000001/12") || !strings.Contains(second.Reason, "5000000 of 15000000") {
		t.Errorf("the reason does not name link and number: %q", second.Reason)
	}
	w.net.change(func() { w.net.dead[[2]int{1, 3}] = false })
	w.retry(t.Context())
	if second = w.of([2]int{1, 2}, [2]int{4, 2}, 2); second.State != StateAccepted || through(second) != "1354" || second.Reason != "" {
		t.Errorf("with another way: %+v", second)
	}
	w.net.change(func() { w.net.capacity = 8 * mbit })
	w.relieve(t.Context())
	if promises := w.Book.Promises(); w.Book.Promised(port(1, 2)) != 0 || w.Book.Promised(port(1, 3)) != 0 {
		t.Errorf("10 Mbit/s are promised on a link of 8: %+v", promises)
	}
}

// With a free way beside it, a flow is moved to that.
func TestLostCapacityMoves(t *testing.T) {
	w := newWorld(t)
	w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
	w.net.change(func() { w.net.narrow = map[[2]int]uint64{{2, 4}: 9 * mbit} })
	w.relieve(t.Context())
	if r := w.of([2]int{1, 1}, [2]int{4, 1}, 1); through(r) != "1354" || r.State != StateAccepted || r.Moves != 1 {
		t.Errorf("%+v", r)
	}
}

// A flow that is refused names the link that stands in the way, and what it has.
func TestRefusalNamesTheLink(t *testing.T) {
	w := newWorld(t)
	w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
	w.placed([2]int{1, 2}, [2]int{4, 2}, 2)
	r := w.placed([2]int{1, 3}, [2]int{4, 3}, 3)
	want := "link from 0000000000000001/12: 10000000 bit/s asked, 5000000 of 15000000 available, and no other path has enough"
	if r.State != StateBestEffort || r.Reason != want {
		t.Errorf("%s: %q, want %q", r.State, r.Reason, want)
	}
	w.net.change(func() { w.net.capacity = 8 * mbit })
	if r := w.placed([2]int{2, 1}, [2]int{2, 2}, 3); !strings.HasPrefix(r.Reason, "link from 0000000000000002/2: 10000000 bit/s asked, 8000000 of 8000000 available") {
		t.Errorf("on one switch: %q", r.Reason)
	}
}

// Flows that a class carries give up their promises; others stay.
func TestGiveWay(t *testing.T) {
	w := newWorld(t)
	r := w.placed([2]int{1, 1}, [2]int{4, 1}, 1)
	w.placed([2]int{1, 2}, [2]int{4, 2}, 2)
	matches, faults := (&match.Flow{IPv4Src: match.Text(addr(1, 1).String()), IPv4Dst: match.Text(addr(4, 1).String()), TCPDst: "5000-5003"}).Parse()
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if keys := w.Within(matches); len(keys) != 1 || keys[0].ID != r.ID {
		t.Fatalf("within the class: %v", keys)
	}
	w.GiveWay(matches, "a class")
	w.eventually("the flow is over", func() bool { return len(w.Flows()) == 1 && len(w.Book.Promises()) == 1 })
	if keys := w.Within(matches); len(keys) != 0 {
		t.Errorf("still within: %v", keys)
	}
}
