package mobilityfirst

import (
	"testing"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/host"
	"github.com/sluice-net/sluice/services/mobilityfirst/hosttest"
)

// Chunks that may go by all links between two hosts do, each link by its own label; when one is cut they go on by the other,
// and by both when it is there again. Ordinary chunks go by one.
func TestMultihoming(t *testing.T) {
	begin(t)
	top := lab.Topology{Name: "mfmulti", Switches: []lab.Switch{{Name: "s1"}, {Name: "s2"}}, Hosts: []lab.Host{{Name: "a"}, {Name: "b"}}}
	for _, l := range [][2]string{{"a", "s1"}, {"a", "s2"}, {"b", "s1"}, {"b", "s2"}, {"s1", "s2"}} {
		top.Links = append(top.Links, lab.Both(l[0], l[1], delayline.Params{Rate: 40e6}))
	}
	l := lab.New(t, top)
	c := control(t, l)
	both := func(at *lab.LiveHost) string {
		socket, _ := hosttest.Run(t, host.Options{Interfaces: []string{"eth0", "eth1"}, Open: opener(at)})
		return socket
	}
	a, _ := open(t, both(l.Host("a")))
	b, _ := open(t, both(l.Host("b")))
	known(t, c)
	counted := [2]int{}
	// carried is how many packets have gone by labels at each switch since it was asked last.
	carried := func() (n [2]int) {
		for i, s := range []string{"s1", "s2"} {
			all := total(labelled(t, l.Switch(s)))
			n[i], counted[i] = all-counted[i], all
		}
		return n
	}
	const chunks, size = 20, 1 << 18
	// The datapath tells the counters of its rules from time to time: what a switch has carried may be
	// counted with the next chunks.
	const few = 10 // for one packet by a switch, at least so many go by the other
	eventually(t, "ordinary chunks go by one switch", func() bool {
		send(t, a, b, chunks, size)
		n := carried()
		return few*min(n[0], n[1]) < max(n[0], n[1])
	})
	byBoth := func() bool {
		sendAs(t, a, b, frame.Multihoming, chunks, size, func(int) {})
		n := carried()
		return few*min(n[0], n[1]) > max(n[0], n[1])
	}
	eventually(t, "chunks that may go by both switches do", byBoth)
	set := func(up bool) {
		t.Helper()
		if err := l.SetLink(t.Context(), "a-s1", up); err != nil {
			t.Fatal(err)
		}
	}
	sendAs(t, a, b, frame.Multihoming, chunks, size, func(i int) {
		if i == chunks/4 {
			set(false)
		}
	})
	eventually(t, "nothing goes by the switch to which the link is cut", func() bool {
		sendAs(t, a, b, frame.Multihoming, chunks, size, func(int) {})
		n := carried()
		return few*n[0] < n[1]
	})
	set(true)
	eventually(t, "both links carry chunks again", byBoth)
}
