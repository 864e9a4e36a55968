package latency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/qos/mark"
	"github.com/sluice-net/sluice/qos/reserve"
)

// carryFor is how long a class keeps its queue where none of its connections is carried
// any more: the next one finds it there.
const carryFor = 5 * time.Minute

// carriage is where packets of a class go under the headers of those who carry them.
type carriage struct {
	// dscp tells them between two carriers; zero before the first, or if none is left.
	dscp uint8
	// asked is when a connection was last looked for in the class.
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
		c.dscp = 0
	}
	return gone
}

// held are the ports at which the class has, or is to have, its queue for them, ascending.
func (c *carriage) held() []place { return slices.SortedFunc(maps.Keys(c.ports), place.Compare) }

// open says whether something is missing somewhere.
func (c *carriage) open() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(c.ports)), func(p *carriedPort) bool { return !p.ready || p.missing() != "" })
}

// carryAll gives classes their queues wherever connections of theirs are carried.
func (s *Service) carryAll(ctx context.Context) {
	now := time.Now()
	left := map[*entry][]place{}
	var work []*entry
	s.mu.Lock()
	for _, e := range s.sortedClasses() {
		if e.state == StateProvisioning {
			continue
		}
		left[e] = e.carriage.expire(now)
		settled := e.carriage.restored && now.Sub(s.started) > s.settings.Settle
		if settled || e.carriage.open() || len(left[e]) > 0 {
			e.carriage.restored = e.carriage.restored && !settled
			work = append(work, e)
		}
	}
	s.mu.Unlock()
	tasks.Each(work, movers, func(e *entry) {
		e.work.Lock()
		defer e.work.Unlock()
		if s.has(e) {
			s.carry(ctx, e, left[e])
		}
	})
}

// carry gives a class its queue at the ports of its carriage. left are those that are not
// any more. e.work is held.
func (s *Service) carry(ctx context.Context, e *entry, left []place) {
	ctx, cancel := context.WithTimeout(ctx, s.settings.Timeout)
	defer cancel()
	s.mu.Lock()
	ports := e.carriage.held()
	s.mu.Unlock()
	lacks := s.markCarried(ctx, e, ports)
	s.promiseCarried(e)
	for d, at := range bySwitch(append(slices.Clone(ports), left...)) {
		if err := s.ensureQueues(ctx, map[openflow.DatapathID][]uint32{d: at}); err != nil {
			for _, port := range at {
				lacks[portRef(d, port)] = err.Error()
			}
		}
	}
	if changed := s.carriedNow(e, lacks); !changed && len(left) == 0 {
		return
	}
	if err := s.save(ctx, e); err != nil {
		s.log.Warn("where a class is carried could not be stored", "class", e.class.Name, "error", err)
	}
	s.treatments.Changed()
}

// markCarried finds out which of the switches need marks, and the class's mark if one does.
// It returns what keeps the class from having its queue at a port.
func (s *Service) markCarried(ctx context.Context, e *entry, ports []place) map[place]string {
	lacks := map[place]string{}
	userspace := map[openflow.DatapathID]bool{}
	for _, at := range ports {
		is, err := s.userspace(ctx, at.Switch)
		if err == nil {
			userspace[at.Switch] = is
		}
		if err == nil && s.net.Capacity(at) == 0 {
			err = &reserve.Shortage{Link: at}
		}
		if err != nil {
			lacks[at] = err.Error()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(e.userspace, userspace)
	if !slices.Contains(slices.Collect(maps.Values(userspace)), true) {
		return lacks
	}
	own, err := ownDSCP(&e.class)
	if err == nil {
		e.own = own
		e.mark, err = s.freeMark(e, e.held())
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

func carriedKey(name string) reserve.Key {
	return reserve.Key{Owner: BookOwner, ID: name + " (carried)"}
}

// carriedPromise is that of the guaranteed rate wherever the class is carried and does not
// go by itself.
func (s *Service) carriedPromise(e *entry) reserve.Promise {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := reserve.Promise{Key: carriedKey(e.class.Name), Enforced: true}
	own := portsOf(e.routes)
	for _, at := range e.carriage.held() {
		if !slices.Contains(own, at) {
			capacity := s.net.Capacity(at)
			p.Shares = append(p.Shares, reserve.Share{Link: at, Rate: s.ratesAt(&e.class, capacity).min, Kept: kept(capacity)})
		}
	}
	return p
}

// promiseCarried has the book make that promise, and notes where it cannot.
func (s *Service) promiseCarried(e *entry) {
	p := s.carriedPromise(e)
	short := map[place]string{}
	for len(p.Shares) > 0 {
		var lack *reserve.Shortage
		if err := s.book.Admit(p); !errors.As(err, &lack) {
			break
		}
		short[lack.Link] = fmt.Sprintf("nothing is guaranteed there: %v", lack)
		p.Shares = slices.DeleteFunc(p.Shares, func(x reserve.Share) bool { return x.Link == lack.Link })
	}
	if len(p.Shares) == 0 {
		s.book.Release(p.Key)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, p := range e.carriage.ports {
		p.short = short[at]
	}
}

// carriedNow notes at which ports the class has its queue, tells what is missing, and says
// whether that is new.
func (s *Service) carriedNow(e *entry, lacks map[place]string) (changed bool) {
	told := map[place]string{}
	s.mu.Lock()
	for at, p := range e.carriage.ports {
		p.lack = lacks[at]
		if p.lack == "" && !p.ready {
			p.ready, changed = true, true
		}
		if why := p.missing(); why != p.told {
			p.told, told[at] = why, why
		}
	}
	s.mu.Unlock()
	for _, at := range slices.SortedFunc(maps.Keys(told), place.Compare) {
		if told[at] != "" {
			s.log.Warn("a class is not kept where connections of it are carried", "class", e.class.Name, "port", at, "reason", told[at])
			s.publish("not-carried", map[string]any{"class": e.class.Name, "switch": at.Switch.String(), "port": at.Port, "reason": told[at]})
		}
	}
	return changed || len(told) > 0
}

// carriedNotes say where connections of the class that are carried do not have what it
// promises. The lock is held.
func (s *Service) carriedNotes(e *entry) (notes []string) {
	const begin = "connections of it that agents carry"
	if !e.carriage.asked.IsZero() && e.carriage.dscp == 0 {
		notes = append(notes, begin+" go without the queue between the agents: no DSCP is left by which they could be known there")
	}
	for _, at := range e.carriage.held() {
		p := e.carriage.ports[at]
		switch {
		case !p.ready || p.lack != "":
			notes = append(notes, fmt.Sprintf("%s go without the queue at port %v: %s", begin, at, cmp.Or(p.lack, "it is not there yet")))
		case p.short != "":
			notes = append(notes, fmt.Sprintf("%s, at port %v: %s", begin, at, p.short))
		case p.between && e.userspace[at.Switch] && !s.knownBetween(e, at):
			notes = append(notes, fmt.Sprintf("%s go without the queue at port %v until `sluice classifier` runs beside the switch", begin, at))
		}
	}
	return notes
}

// knownBetween says whether the classifier at a port has said that it knows packets between
// carriers, by the class's DSCP. The lock is held.
func (s *Service) knownBetween(e *entry, at place) bool {
	b, _ := s.databases.Bridge(uint64(at.Switch))
	q := ours(b, at.Port)
	return q != nil && mark.Knows(q.Tags[mark.TagKnown], mark.Kept(e.queue, e.carriage.dscp))
}
