package latency

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/reserve"
)

// carryFor is how long a class keeps its queue where none of its connections is carried
// any more: the next one finds it there.
const carryFor = 5 * time.Minute

// carriage is where packets of a class go under the headers of those who carry them.
type carriage struct {
	// dscp tells them between two carriers; zero before the first, or if none is left.
	dscp uint8
	// asked is when a connection was last looked for in the class; zero if none has been for
	// carryFor.
	asked time.Time
	ports map[place]*carriedPort
	// restored says that it is as an earlier controller left it: it is gone through when the
	// network has settled.
	restored bool
}

// carriedPort is a port by which they leave a switch.
type carriedPort struct {
	// between says that they do so between two carriers, too.
	between bool
	used    time.Time
	// ready says that the class has been given its queue there, lack why it has not, or
	// may not have any more, and short why nothing is guaranteed to it.
	ready       bool
	lack, short string
	told        string // the one of them that has been told
}

// missing is what the class lacks at the port.
func (p *carriedPort) missing() string { return cmp.Or(p.lack, p.short) }

// use notes that a port is in use, and says whether that is new.
func (c *carriage) use(x network.Carried, now time.Time) bool {
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

// expire forgets what has not been used for long, and returns those ports.
func (c *carriage) expire(now time.Time) (gone []place) {
	for at, p := range c.ports {
		if now.Sub(p.used) > carryFor {
			delete(c.ports, at)
			gone = append(gone, at)
		}
	}
	if len(c.ports) == 0 && now.Sub(c.asked) > carryFor {
		c.dscp, c.asked = 0, time.Time{}
	}
	return gone
}

// held are the ports at which the class has, or is to have, its queue for them, ascending.
func (c *carriage) held() []place { return slices.SortedFunc(maps.Keys(c.ports), place.Compare) }

// open says whether something is missing somewhere.
func (c *carriage) open() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(c.ports)), func(p *carriedPort) bool { return !p.ready || p.missing() != "" })
}

// carry gives a class its queue at the ports of its carriage. left are those that are not
// any more. e.work is held.
func (c *placer) carry(ctx context.Context, e *entry, left []place) {
	c.classes.mu.Lock()
	ports := e.carriage.held()
	c.classes.mu.Unlock()
	lacks := c.markCarried(ctx, e, ports)
	c.plan.promiseCarried(e)
	for d, at := range bySwitch(append(slices.Clone(ports), left...)) {
		if err := c.queues.ensure(ctx, map[openflow.DatapathID][]uint32{d: at}); err != nil {
			for _, port := range at {
				lacks[portRef(d, port)] = err.Error()
			}
		}
	}
	if changed := c.carriedNow(e, lacks); !changed && len(left) == 0 {
		return
	}
	if err := c.save(ctx, e); err != nil {
		c.Log.Warn("where a class is carried could not be stored", "class", e.class.Name, "error", err)
	}
	c.Treatments.Changed()
}

// markCarried finds out which of the switches need marks, and the class's mark if one does.
// It returns what keeps the class from having its queue at a port.
func (c *placer) markCarried(ctx context.Context, e *entry, ports []place) map[place]string {
	lacks := map[place]string{}
	userspace := map[openflow.DatapathID]bool{}
	for _, at := range ports {
		is, err := c.queues.userspace(ctx, at.Switch)
		if err == nil {
			userspace[at.Switch] = is
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

// carriedNow notes at which ports the class has its queue, tells what is missing, and says
// whether that is new.
func (c *placer) carriedNow(e *entry, lacks map[place]string) (changed bool) {
	told := map[place]string{}
	c.classes.mu.Lock()
	for at, p := range e.carriage.ports {
		p.lack = lacks[at]
		if p.lack == "" && !p.ready {
			p.ready, changed = true, true
		}
		if why := p.missing(); why != p.told {
			p.told, told[at] = why, why
		}
	}
	c.classes.mu.Unlock()
	for _, at := range slices.SortedFunc(maps.Keys(told), place.Compare) {
		if told[at] != "" {
			c.Log.Warn("a class is not kept where connections of it are carried", "class", e.class.Name, "port", at, "reason", told[at])
			c.Publish("class.not-carried", map[string]any{"class": e.class.Name, "switch": at.Switch.String(), "port": at.Port, "reason": told[at]})
		}
	}
	return changed || len(told) > 0
}

// carriedNotes say where connections of the class that are carried do not have what it
// promises. The lock is held.
func (q *queues) carriedNotes(e *entry) (notes []string) {
	const begin = "what of it agents carry"
	if !e.carriage.asked.IsZero() && e.carriage.dscp == 0 {
		notes = append(notes, begin+" goes without the queue between the agents: no DSCP is left by which they could be known there")
	}
	for _, at := range e.carriage.held() {
		p := e.carriage.ports[at]
		switch {
		case !p.ready || p.lack != "":
			notes = append(notes, fmt.Sprintf("%s goes without the queue at port %v: %s", begin, at, cmp.Or(p.lack, "it is not there yet")))
		case p.short != "":
			notes = append(notes, fmt.Sprintf("%s, at port %v: %s", begin, at, p.short))
		case p.between && e.userspace[at.Switch] && !q.knownBetween(e, at):
			notes = append(notes, fmt.Sprintf("%s goes without the queue at port %v until `sluice classifier` runs beside the switch", begin, at))
		}
	}
	return notes
}
