package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/qos/bandwidth"
	"github.com/sluice-net/sluice/qos/latency"
	"github.com/sluice-net/sluice/qos/match"
)

// A class with the packets of a critical flow takes its place: one promise stands for
// them on each link, and there is room for the class where there was for the flow.
func TestClassTakesOverCriticalFlow(t *testing.T) {
	c := newClasses(t, line(), true)
	d, faults := bandwidth.Spec{Name: "video", Rate: 8e6, Match: match.Flow{UDPDst: "7001"}}.Parse()
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if err := c.critical.Definitions.Add(t.Context(), d.Name, d); err != nil {
		t.Fatal(err)
	}
	flood := c.floods(2e6, 7001)[0]
	within(t, 10*time.Second, "the flow is accepted", func() error {
		if all := c.critical.Flows(); len(all) != 1 || all[0].State != bandwidth.StateAccepted {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
	spec := c.udp("video", "h1", "h3", 7001, 1)
	spec.MinRate = "8000000"
	c.add(spec)
	within(t, 10*time.Second, "the flow gives way", func() error {
		if all := c.critical.Flows(); len(all) != 0 {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
	for _, p := range c.book.Promises() {
		if p.Owner != latency.BookOwner {
			t.Errorf("a promise is left: %+v", p)
		}
	}
	before, _ := flood.Received()
	within(t, 10*time.Second, "its packets arrive", func() error {
		if now, _ := flood.Received(); now < before+100 {
			return fmt.Errorf("%d packets", now-before)
		}
		return nil
	})
	c.delete("video")
	within(t, 10*time.Second, "without the class the flow is critical again", func() error {
		if all := c.critical.Flows(); len(all) != 1 || all[0].State != bandwidth.StateAccepted {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
}

// After a restart with links of half their rate, the class of lower priority gives its
// guarantee up and says why; the other has its own, whatever the first sends.
func TestClassesOnLessCapacity(t *testing.T) {
	c := newClasses(t, line(), true)
	for i, port := range []int{7001, 7002} {
		spec := c.udp(fmt.Sprint("class", i), "h1", "h3", port, i+1)
		spec.MinRate = "4000000"
		c.add(spec)
	}
	c.stop()
	c.rate = linkRate / 2
	c.start()
	c.discover()
	within(t, 20*time.Second, "the second class yields", func() error {
		if i, _ := c.service.Class("class1"); i.State != latency.StateDegraded || !strings.Contains(i.Reason, "4000000 bit/s asked, 924000 of 5000000") {
			return fmt.Errorf("%s: %s", i.State, i.Reason)
		}
		return nil
	})
	if i, _ := c.service.Class("class0"); i.State != latency.StateActive {
		t.Errorf("the first is %s: %s", i.State, i.Reason)
	}
	got := rates(c.floods(6e6, 7001, 7002), 2*time.Second, 3*time.Second)
	t.Logf("bit/s: %.0f", got)
	// Of what the link carries: both send more than it can, so it carries less than 5 Mbit/s
	// only where their senders did not get to run.
	if carried := got[0] + got[1]; got[0] < 0.95*4.0/5*carried || carried < 2.5e6 {
		t.Errorf("of %.0f bit/s the first has %.0f, and 4000000 of 5000000 guaranteed", carried, got[0])
	}
}
