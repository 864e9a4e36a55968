package classes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

// carryTimeout is how long a class keeps its queue at a port after other services have stopped
// carrying its connections there, so that the next connection finds the queue.
const carryTimeout = 5 * time.Minute

// markUsed records that carriers use a port, and reports whether the class's queue at that port has
// yet to be made.
func (c *carriage) markUsed(x network.Carried, now time.Time) bool {
	p := c.ports[x.At]
	if p == nil {
		if c.ports == nil {
			c.ports = map[place]*carriedPort{}
		}
		p = &carriedPort{}
		c.ports[x.At] = p
	}
	p.used = now
	if x.Between && !p.between {
		p.between, p.ready = true, false
	}
	return !p.ready
}

// expire removes and returns the ports that no carrier has used for carryTimeout.
func (c *carriage) expire(now time.Time) (gone []place) {
	for at, p := range c.ports {
		if now.Sub(p.used) > carryTimeout {
			delete(c.ports, at)
			gone = append(gone, at)
		}
	}
	if len(c.ports) == 0 && now.Sub(c.asked) > carryTimeout {
		c.dscp, c.asked = 0, time.Time{}
	}
	return gone
}

// carry gives a class its queue at the ports where other services carry its packets. left
// lists the ports where they no longer do. e.work is held.
func (c *placer) carry(ctx context.Context, e *entry, left []place) {
	c.classes.mu.Lock()
	ports := e.carriage.portList()
	c.classes.mu.Unlock()
	lacks := c.assignMark(ctx, e, ports)
	c.plan.promiseCarried(e)
	for d, at := range bySwitch(append(slices.Clone(ports), left...)) {
		if err := c.queues.ensure(ctx, map[openflow.DatapathID][]uint32{d: at}); err != nil {
			for _, port := range at {
				lacks[portRef(d, port)] = err.Error()
			}
		}
	}
	if changed := c.updateCarried(e, lacks); !changed && len(left) == 0 {
		return
	}
	if err := c.save(ctx, e); err != nil {
		c.Log.Warn("where a class is carried could not be stored", "class", e.class.Name, "error", err)
	}
	c.Treatments.Changed()
}

// assignMark finds out which of the ports' switches forward in user space and so need marks, and
// assigns the class a mark if any does. For each port that cannot have the queue, it returns the
// reason.
func (c *placer) assignMark(ctx context.Context, e *entry, ports []place) map[place]string {
	lacks := map[place]string{}
	userspace := map[openflow.DatapathID]bool{}
	for _, at := range ports {
		inUserspace, err := c.queues.userspace(ctx, at.Switch)
		if err == nil {
			userspace[at.Switch] = inUserspace
		}
		if err == nil && c.Network.Capacity(at) == 0 {
			err = &reserve.Shortage{Link: at}
		}
		if err != nil {
			lacks[at] = err.Error()
		}
	}
	c.classes.mu.Lock()
	defer c.classes.mu.Unlock()
	maps.Copy(e.userspace, userspace)
	if !slices.Contains(slices.Collect(maps.Values(userspace)), true) {
		return lacks
	}
	own, err := ownDSCP(&e.class)
	if err == nil {
		e.own = own
		e.mark, err = c.classes.freeMark(e, e.held())
	}
	if err != nil {
		for _, at := range ports {
			if userspace[at.Switch] {
				lacks[at] = err.Error()
			}
		}
	}
	return lacks
}

// updateCarried records at which ports the class has its queue, logs and publishes new reasons why
// one is missing, and reports whether anything has changed.
func (c *placer) updateCarried(e *entry, lacks map[place]string) (changed bool) {
	reported := map[place]string{}
	c.classes.mu.Lock()
	for at, p := range e.carriage.ports {
		p.lack = lacks[at]
		if p.lack == "" && !p.ready {
			p.ready, changed = true, true
		}
		if why := p.missing(); why != p.reported {
			p.reported, reported[at] = why, why
		}
	}
	c.classes.mu.Unlock()
	for _, at := range slices.SortedFunc(maps.Keys(reported), place.Compare) {
		if reported[at] != "" {
			c.Log.Warn("a class is not kept where connections of it are carried", "class", e.class.Name, "port", at, "reason", reported[at])
			c.Publish("class.not-carried", map[string]any{"class": e.class.Name, "switch": at.Switch.String(), "port": at.Port, "reason": reported[at]})
		}
	}
	return changed || len(reported) > 0
}

// carriedNotes returns notes on the ports where carried connections of the class do not get what
// the class promises. The lock is held.
func (q *queues) carriedNotes(e *entry) (notes []string) {
	const begin = "what of it agents carry"
	if !e.carriage.asked.IsZero() && e.carriage.dscp == 0 {
		notes = append(notes, begin+" goes without the queue between the agents: no DSCP is left by which they could be known there")
	}
	for _, at := range e.carriage.portList() {
		p := e.carriage.ports[at]
		switch {
		case !p.ready || p.lack != "":
			notes = append(notes, fmt.Sprintf("%s goes without the queue at port %v: %s", begin, at, cmp.Or(p.lack, "it is not there yet")))
		case p.short != "":
			notes = append(notes, fmt.Sprintf("%s, at port %v: %s", begin, at, p.short))
		case p.between && e.userspace[at.Switch] && !q.isKnownBetween(e, at):
			notes = append(notes, fmt.Sprintf("%s goes without the queue at port %v until `sluice classifier` runs beside the switch", begin, at))
		}
	}
	return notes
}
