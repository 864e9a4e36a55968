package classes

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/topology"
)

// loaded is a row of switches whose links are used to a part of their capacity.
func loaded(latency time.Duration, used uint64) *topology.Topology {
	t := row(3, latency)
	for i := range t.Links {
		t.Links[i].Capacity, t.Links[i].Used = 10e6, used
	}
	return topology.New(2, t.Switches, t.Links)
}

// A class is admitted by what its path takes without the queue of traffic that has no
// class, in which it will not stand: after congestion as before.
func TestAdmittedWithoutThePlainQueue(t *testing.T) {
	x := served(t)
	x.withClassifiers()
	x.fabric.SetTopology(loaded(500*time.Microsecond, 0))
	x.plan.baseline.update(x.fabric.Topology(), time.Now())
	x.fabric.SetTopology(loaded(150*time.Millisecond, 10e6))
	x.plan.baseline.update(x.fabric.Topology(), time.Now())
	class := request(t, "quick", 7000)
	class.Latency = time.Millisecond
	info, err := x.Add(t.Context(), class)
	if err != nil || info.State != StateActive || info.Paths[0].Latency != 1 {
		t.Errorf("%+v, %v", info, err)
	}
	class = request(t, "quicker", 7001)
	class.Latency = 900 * time.Microsecond
	if _, err := x.Add(t.Context(), class); err == nil {
		t.Error("a latency was promised that no link has ever had")
	}
}

// A link is as quick as it ever was, until it has been slower for a while with little
// traffic: then it is another line.
func TestBaseline(t *testing.T) {
	var c baseline
	began := time.Now()
	at := portRef(1, 2)
	for i, step := range []struct {
		after   time.Duration
		latency time.Duration
		used    uint64
		want    time.Duration
	}{
		{0, 3 * time.Millisecond, 9e6, 3 * time.Millisecond},
		{time.Second, time.Millisecond, 0, time.Millisecond},
		{2 * time.Second, 300 * time.Millisecond, 9e6, time.Millisecond},
		{slowTime, 300 * time.Millisecond, 0, time.Millisecond}, // what is measured of a queue lasts
		{slowTime + 30*time.Second, 0, 0, time.Millisecond},     // not measured
		{2*slowTime - time.Second, 8 * time.Millisecond, 0, time.Millisecond},
		{2 * slowTime, 20 * time.Millisecond, 0, 8 * time.Millisecond}, // it is longer now
		{3 * slowTime, 20 * time.Millisecond, 9e6, 8 * time.Millisecond},
		{9 * slowTime, 20 * time.Millisecond, 9e6, 8 * time.Millisecond}, // however long there is traffic
	} {
		c.update(loaded(step.latency, step.used), began.Add(step.after))
		top := c.topology(loaded(step.latency, step.used))
		if l, _ := top.LinkFrom(at); l.Latency != step.want {
			t.Errorf("step %d: %v, want %v", i, l.Latency, step.want)
		}
	}
	gone := topology.New(3, nil, nil)
	c.update(gone, began.Add(9*slowTime))
	if len(c.links) == 0 {
		t.Error("a link that has been down for a moment is forgotten")
	}
	c.update(gone, began.Add(9*slowTime+forgetAfter))
	if len(c.links) != 0 {
		t.Error("links that have gone are remembered")
	}
}
