package network

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// TestEventsOfOnePortAreBounded checks that a bounded number of events about the hosts and the
// state of each port is published, that those left out are counted, and that subscribers within
// the controller receive every event.
func TestEventsOfOnePortAreBounded(t *testing.T) {
	published := map[EventKind][]Event{}
	n, err := New(Config{Publish: func(_ string, e any) {
		x := e.(Event)
		published[x.Kind] = append(published[x.Kind], x)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	heard := 0
	n.Subscribe(func(e Event) {
		if e.Kind != EventsLeftOut {
			heard++
		}
	})
	now := time.Now()
	noisy, calm := PortRef{Switch: 1, Port: 1}, PortRef{Switch: 1, Port: 2}
	kinds := []EventKind{HostAdded, HostRemoved, HostMoved, HostChanged, PortUp, PortDown}
	for i := range 6000 {
		n.publisher.emit(Event{Kind: kinds[i%len(kinds)], At: now, Port: noisy})
	}
	n.publisher.emit(Event{Kind: PortDown, At: now, Port: calm})
	n.publisher.emit(Event{Kind: SwitchDown, At: now, Switch: 1})
	total, ofCalm := 0, 0
	for _, k := range kinds {
		for _, e := range published[k] {
			total++
			if e.Port == calm {
				ofCalm++
			}
		}
	}
	if heard != 6002 || total != eventBurst+1 || ofCalm != 1 || len(published[SwitchDown]) != 1 {
		t.Errorf("heard %d, published %d, %d of the calm port, %d of others", heard, total, ofCalm, len(published[SwitchDown]))
	}
	now = now.Add(2 * time.Second)
	n.publisher.emit(Event{Kind: HostAdded, At: now, Port: noisy})
	if all := published[HostAdded]; all[len(all)-1].LeftOut != 6000-eventBurst {
		t.Errorf("the next tells that %d were left out", all[len(all)-1].LeftOut)
	}
	for range 100 {
		n.publisher.emit(Event{Kind: HostAdded, At: now, Port: noisy})
	}
	n.publisher.reportLeftOut(now.Add(eventLimiterIdle - 1))
	if len(published[EventsLeftOut]) != 0 {
		t.Error("told before it is quiet")
	}
	n.publisher.reportLeftOut(now.Add(eventLimiterIdle))
	if all := published[EventsLeftOut]; len(all) != 1 || all[0].Port != noisy || all[0].LeftOut != 99 {
		t.Errorf("told at the end: %+v", all)
	}
	if len(n.publisher.portLimiter.ports) != 0 {
		t.Errorf("%d ports are remembered", len(n.publisher.portLimiter.ports))
	}
}

// TestRefusalsAreToldBySwitch checks the rates at which refused claims are reported: of one
// switch, and of all; the first of each switch is always reported, and those left out are counted.
func TestRefusalsAreToldBySwitch(t *testing.T) {
	n, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	now := time.Now()
	told := func(d openflow.DatapathID, tries int) (turns int) {
		for range tries {
			if _, turn := n.publisher.refusalLimiter.allowAt(PortRef{Switch: d}, now); turn {
				turns++
			}
		}
		return turns
	}
	if got := told(1, 10_000); got != refusalBurst {
		t.Errorf("%d of one switch at once, want %d", got, refusalBurst)
	}
	all := refusalBurst
	for d := range openflow.DatapathID(100) {
		all += told(2+d, 100)
	}
	if want := totalRefusalBurst + 100 - (totalRefusalBurst-refusalBurst)/refusalBurst - 1; all < totalRefusalBurst || all > want {
		t.Errorf("%d of all at once, want at most %d", all, want)
	}
	if got := told(1000, 100); got != 1 {
		t.Errorf("%d of one more switch, want its first", got)
	}
	if left := n.publisher.refusalLimiter.expire(now.Add(eventLimiterIdle)); left[PortRef{Switch: 1}] != 10_000-refusalBurst || left[PortRef{Switch: 1000}] != 99 {
		t.Errorf("left out %d and %d", left[PortRef{Switch: 1}], left[PortRef{Switch: 1000}])
	}
}
