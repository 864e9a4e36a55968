package qos

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/services/qos/classes"
	"github.com/sluice-net/sluice/services/qos/critical"
	"github.com/sluice-net/sluice/services/qos/match"
)

// takesOverCriticalFlow checks that a class with the packets of a critical flow replaces
// the flow. One promise counts for them on each link, and the class fits where the flow
// did.
func (c *classesLab) takesOverCriticalFlow(t *testing.T) {
	d, faults := critical.Spec{Name: "video", Rate: 8e6, Match: match.Flow{UDPDst: "7001"}}.Parse()
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if err := c.critical.Definitions.Add(t.Context(), d.Name, d); err != nil {
		t.Fatal(err)
	}
	flood := c.floods(2e6, 7001)[0]
	within(t, testTimeout, "the flow is accepted", func() error {
		if all := c.critical.Flows(); len(all) != 1 || all[0].State != critical.StateAccepted {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
	spec := c.udp("video", "h1", "h3", 7001, 1)
	spec.MinRate = "8000000"
	c.add(spec)
	within(t, testTimeout, "the flow gives way", func() error {
		if all := c.critical.Flows(); len(all) != 0 {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
	for _, p := range c.book.Promises() {
		if p.Owner != classes.BookOwner {
			t.Errorf("a promise is left: %+v", p)
		}
	}
	before, _ := flood.Received()
	within(t, testTimeout, "its packets arrive", func() error {
		if now, _ := flood.Received(); now < before+100 {
			return fmt.Errorf("%d packets", now-before)
		}
		return nil
	})
	c.delete("video")
	defer func() {
		if err := c.critical.Definitions.Remove(context.WithoutCancel(t.Context()), d.Name, 0); err != nil {
			t.Error(err)
		}
	}()
	within(t, testTimeout, "without the class the flow is critical again", func() error {
		if all := c.critical.Flows(); len(all) != 1 || all[0].State != critical.StateAccepted {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
}

// onLessCapacity restarts the controller with links of half their rate: the class of lower
// priority loses its guarantee and says why; the other keeps its guarantee.
func (c *classesLab) onLessCapacity(t *testing.T) {
	for i, port := range []int{7001, 7002} {
		spec := c.udp(fmt.Sprint("class", i), "h1", "h3", port, i+1)
		spec.MinRate = "4000000"
		c.add(spec)
	}
	c.stop()
	c.rate = linkRate / 2
	c.start()
	c.discover()
	within(t, testTimeout, "the second class yields", func() error {
		if i, _ := c.service.Class("class1"); i.State != classes.StateDegraded || !strings.Contains(i.Reason, "4000000 bit/s asked, 924000 of 5000000") {
			return fmt.Errorf("%s: %s", i.State, i.Reason)
		}
		return nil
	})
	if i, _ := c.service.Class("class0"); i.State != classes.StateActive {
		t.Errorf("the first is %s: %s", i.State, i.Reason)
	}
	within(t, testTimeout, "the queues are of the first class's guarantee and of the link's rate", func() error {
		for _, node := range []string{"s1", "s2", "s3"} {
			if text := c.kernelClasses(node); countOf(text, "rate 4Mbit ceil 5Mbit") != 1 {
				return fmt.Errorf("%s: %s", node, text)
			}
		}
		return nil
	})
}
