package cinema

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-net/sluice/lab/testbed"
)

// testChangeAtOnce checks that two viewers who repeatedly change to the same channel at the
// same moment, at one gateway and at two, both get it, without duplicate packets, and that
// nothing is left of the old one.
func testChangeAtOnce(w *world, west, east *rawGateway) {
	for name, two := range map[string][]*rawViewer{
		"one gateway":  {west.join("c1"), west.join("c1")},
		"two gateways": {west.join("c1"), east.join("c1")},
	} {
		for i := range 10 {
			now, next := fmt.Sprintf("c%d", i%2+1), fmt.Sprintf("c%d", (i+1)%2+1)
			w.together(two, next, now)
			w.together(two, next)
		}
		w.allGot(two, 20)
		for _, v := range two {
			if s := v.sum(); s.doubled > 0 {
				w.t.Errorf("%s: a viewer got %d of %d packets twice", name, s.doubled, s.packets)
			}
			v.leave()
		}
	}
}

// together makes viewers watch channels, all at once.
func (w *world) together(all []*rawViewer, channels ...string) {
	w.t.Helper()
	var wg sync.WaitGroup
	errs, begin := make([]error, len(all)), make(chan struct{})
	for i, v := range all {
		wg.Go(func() {
			<-begin
			errs[i] = v.watch(w.t.Context(), channels...)
		})
	}
	close(begin)
	wg.Wait()
	for _, err := range errs {
		w.must(err)
	}
}

// allGot waits until each of the viewers has got that many more packets.
func (w *world) allGot(all []*rawViewer, more int) {
	w.t.Helper()
	had := make([]int, len(all))
	for i, v := range all {
		had[i] = v.sum().packets
	}
	w.must(testbed.Poll(w.t.Context(), "packets for all viewers", func() error {
		for i, v := range all {
			if n := v.sum().packets - had[i]; n < more {
				return fmt.Errorf("viewer %s has got %d of %d", v.id, n, more)
			}
		}
		return nil
	}))
}

// changing matches the parts of a rule's description that change over time.
var changing = regexp.MustCompile(`(duration|n_packets|n_bytes|idle_age|hard_age)=[^,]*,? ?`)

// has lists a switch's rules for channels, and its groups.
func (w *world) has(name string) (all []string) {
	w.t.Helper()
	for text := range strings.Lines(w.ofctl(name, "dump-flows") + w.ofctl(name, "dump-groups")) {
		if strings.Contains(text, "tp_dst=5004") || strings.Contains(text, "group_id=") {
			all = append(all, strings.TrimSpace(changing.ReplaceAllString(text, "")))
		}
	}
	slices.Sort(all)
	return all
}
