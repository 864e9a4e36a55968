package classes

import (
	"strings"
	"testing"
)

// addRated has a class of a priority provisioned that is guaranteed a rate.
func (x *setting) addRated(name string, port int, priority uint8, rate uint64) {
	x.t.Helper()
	class := request(x.t, name, port)
	class.Priority, class.MinRate = priority, rate
	if _, err := x.Add(x.t.Context(), class); err != nil {
		x.t.Fatal(err)
	}
}

// A class whose guaranteed rate does not fit any more, because a link has less capacity
// than it had, is not active: the one of lower priority gives its guarantee up, with the
// link and the number, and gets it back when it fits.
func TestLostCapacity(t *testing.T) {
	x := served(t)
	x.withClassifiers()
	x.addRated("first", 7000, 1, 4e6)
	x.addRated("second", 7001, 2, 4e6)
	x.fabric.capacity.Store(6e6)
	x.replaceAll(t.Context())
	if c, _ := x.Class("first"); c.State != StateActive {
		t.Errorf("the first: %s, %s", c.State, c.Reason)
	}
	c, _ := x.Class("second")
	if c.State != StateDegraded || !strings.Contains(c.Reason, "0000000000000001, port 2: 4000000 bit/s asked, 1924000 of 6000000") {
		t.Errorf("8 Mbit/s are guaranteed on 6: %s, %q", c.State, c.Reason)
	}
	if c.Ports[0].MinRate != minQueueRate {
		t.Errorf("the second is still guaranteed %d bit/s", c.Ports[0].MinRate)
	}
	if got := x.Book.Promised(portRef(1, 2)); got != 4e6 {
		t.Errorf("%d bit/s are promised", got)
	}
	x.fabric.capacity.Store(10e6)
	x.replaceAll(t.Context())
	if c, _ := x.Class("second"); c.State != StateActive || c.Ports[0].MinRate != 4e6 || x.Book.Promised(portRef(1, 2)) != 8e6 {
		t.Errorf("with 10 Mbit/s again: %s, %s, %+v", c.State, c.Reason, c.Ports)
	}
}
