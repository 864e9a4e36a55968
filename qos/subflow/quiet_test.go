package subflow

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
)

// A port with too many SYNs that are not placed is quiet once; those with fewer are not, and no
// more ports are counted than may be.
func TestPortsWithTooManyAreQuiet(t *testing.T) {
	c, now := newCounts(), time.Unix(1000, 0)
	loud, other := hostAt(1, 1), hostAt(1, 2)
	times := 0
	for range 1000 {
		if c.add(loud, now) {
			times++
		}
	}
	if times != 1 {
		t.Errorf("1000 in a second: it is to be quiet %d times", times)
	}
	for i := range 1000 {
		if c.add(other, now.Add(time.Duration(i)*10*time.Millisecond)) {
			t.Fatal("100 a second: it is to be quiet")
		}
	}
	c.over(loud)
	if c.add(loud, now.Add(time.Minute)) {
		t.Error("it is quiet again at once")
	}
	for i := range uint32(10 * maxCounted) {
		c.add(network.PortRef{Switch: 9, Port: i}, now.Add(time.Minute))
	}
	if len(c.of) > maxCounted {
		t.Errorf("%d ports are counted", len(c.of))
	}
}
