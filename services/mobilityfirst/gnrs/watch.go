package gnrs

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/clientaddr"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
)

const (
	// optionWatch asks to be told when a name changes while the answer may be kept; an answer that has
	// it says that this will be done.
	optionWatch gnrswire.OptionKind = 21
	// optionChanged is in what tells of a change: an answer to the question that asked for it, and the
	// name.
	optionChanged gnrswire.OptionKind = 22
)

// What is remembered of who watches: in all, of one address, of one name, and of one address of one name:
// so many programs of a host, by their ports.
const (
	maxWatches       = 1 << 18
	maxWatchesOfOne  = 1 << 14
	maxWatchesOfName = 1 << 10
	maxPrograms      = 4
	// maxChanged bounds the names that have changed and of which nobody has been told.
	maxChanged = 4096
)

// repeats are when who has been told of a change is told again, unless he has asked anew.
var repeats = []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, 800 * time.Millisecond}

// watcher is who wants to be told.
type watcher struct {
	request uint32
	until   time.Time
	told    bool
}

// watches are those that wait for changes.
type watches struct {
	send    func(netip.AddrPort, *gnrswire.Message)
	changed chan frame.GUID

	mu    sync.Mutex
	news  map[frame.GUID]bool // names that are in changed
	of    map[frame.GUID]map[netip.AddrPort]*watcher
	by    map[netip.Addr]int // how many each address has
	all   int
	swept time.Time
}

func newWatches(send func(netip.AddrPort, *gnrswire.Message)) *watches {
	return &watches{send: send, changed: make(chan frame.GUID, maxChanged), news: map[frame.GUID]bool{}, of: map[frame.GUID]map[netip.AddrPort]*watcher{}, by: map[netip.Addr]int{}}
}

// add has an address be told of changes of a name, and says whether it will be.
func (w *watches) add(name frame.GUID, at netip.AddrPort, request uint32, now time.Time, last time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.of[name][at]
	if x == nil {
		source := clientaddr.Source(at.Addr()).Addr()
		if w.full(name, source) {
			if w.sweep(now); w.full(name, source) {
				return false
			}
		}
		if w.of[name] == nil {
			w.of[name] = map[netip.AddrPort]*watcher{}
		}
		x = &watcher{}
		w.of[name][at] = x
		w.by[source]++
		w.all++
	}
	*x = watcher{request: request, until: now.Add(last)}
	return true
}

// full says whether there is no room for an address to watch a name. The lock is held.
func (w *watches) full(name frame.GUID, source netip.Addr) bool {
	if w.all >= maxWatches || w.by[source] >= maxWatchesOfOne || len(w.of[name]) >= maxWatchesOfName {
		return true
	}
	programs := 0
	for at := range w.of[name] {
		if clientaddr.Source(at.Addr()).Addr() == source {
			programs++
		}
	}
	return programs >= maxPrograms
}

// remove forgets a watch. The lock is held.
func (w *watches) remove(name frame.GUID, at netip.AddrPort) {
	delete(w.of[name], at)
	if len(w.of[name]) == 0 {
		delete(w.of, name)
	}
	source := clientaddr.Source(at.Addr()).Addr()
	if w.by[source]--; w.by[source] == 0 {
		delete(w.by, source)
	}
	w.all--
}

// sweep forgets the watches whose time is over, once a second at most. The lock is held.
func (w *watches) sweep(now time.Time) {
	if now.Sub(w.swept) < time.Second {
		return
	}
	w.swept = now
	for name, watchers := range w.of {
		for at, x := range watchers {
			if now.After(x.until) {
				w.remove(name, at)
			}
		}
	}
}

// change notes that a name has changed, which is told once if it has not been yet. It does not block: what
// it cannot note is found out when the answers' time is over.
func (w *watches) change(name frame.GUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.news[name] || len(w.of[name]) == 0 {
		return
	}
	select {
	case w.changed <- name:
		w.news[name] = true
	default:
	}
}

// notice is what tells an address of a change.
type notice struct {
	at      netip.AddrPort
	request uint32
}

// run tells of changes until ctx ends.
func (w *watches) run(ctx context.Context) {
	type due struct {
		name frame.GUID
		at   time.Time
	}
	waiting := make([][]due, len(repeats)) // names of which is told again, by how often they were told
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case name := <-w.changed:
			now := time.Now()
			if w.tell(name, 0, now) {
				waiting[0] = append(waiting[0], due{name, now.Add(repeats[0])})
			}
		case now := <-tick.C:
			for i, all := range waiting {
				for len(all) > 0 && now.After(all[0].at) {
					name := all[0].name
					all = all[1:]
					if w.tell(name, i+1, now) && i+1 < len(repeats) {
						waiting[i+1] = append(waiting[i+1], due{name, now.Add(repeats[i+1])})
					}
				}
				waiting[i] = all
			}
		}
	}
}

// tell tells who watches a name that it has changed: all for the first time, and then those who have
// not asked since. Who does not ask after the last time is forgotten. It says whether there was anybody.
func (w *watches) tell(name frame.GUID, times int, now time.Time) bool {
	var all []notice
	w.mu.Lock()
	if times == 0 {
		delete(w.news, name)
	}
	for at, x := range w.of[name] {
		switch {
		case now.After(x.until):
			w.remove(name, at)
			continue
		case times > 0 && !x.told:
			continue
		}
		x.told = true
		all = append(all, notice{at, x.request})
		if times == len(repeats) {
			w.remove(name, at)
		}
	}
	w.mu.Unlock()
	for _, n := range all {
		w.send(n.at, &gnrswire.Message{
			Kind: gnrswire.Lookup, Answer: true, Request: n.request, Requester: requester(n.at),
			Options: []gnrswire.Option{{Kind: optionChanged, Value: name[:]}},
		})
	}
	return len(all) > 0
}

// requester is an address as messages have it, which know IPv4 alone.
func requester(at netip.AddrPort) gnrswire.Address {
	if a := at.Addr().Unmap(); a.Is4() {
		return gnrswire.AddrPortOf(netip.AddrPortFrom(a, at.Port()))
	}
	return gnrswire.AddrPortOf(netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port()))
}

// changedName is the name of whose change a message tells, if it does.
func changedName(m *gnrswire.Message) (name frame.GUID, is bool) {
	for _, o := range m.Options {
		if o.Kind == optionChanged && len(o.Value) == len(name) {
			return frame.GUID(o.Value), true
		}
	}
	return name, false
}
