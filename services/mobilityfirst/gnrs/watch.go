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
	// optionWatch asks for a notification when a name changes while the answer may be cached. In an
	// answer it promises that notification.
	optionWatch gnrswire.OptionKind = 21
	// optionChanged marks a notification: an answer to the lookup that asked for it, with the name.
	optionChanged gnrswire.OptionKind = 22
)

// These constants limit the remembered watches: in total, of one address, of one name, and of one
// address for one name. The last one limits the programs on a host, which differ in their ports.
const (
	maxWatches           = 1 << 18
	maxWatchesPerAddress = 1 << 14
	maxWatchesPerName    = 1 << 10
	maxPortsPerName      = 4
	// maxChanged limits the changed names whose watchers have not been notified yet.
	maxChanged = 4096
)

// repeatDelays lists when a notification is repeated, unless the client has looked the name up
// again.
var repeatDelays = []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, 800 * time.Millisecond}

// watcher is a client that wants to be notified.
type watcher struct {
	request  uint32
	until    time.Time
	notified bool
}

// watches holds the watches of all names.
type watches struct {
	send    func(netip.AddrPort, *gnrswire.Message)
	changed chan frame.GUID

	mu         sync.Mutex
	pending    map[frame.GUID]bool // the names in changed
	byName     map[frame.GUID]map[netip.AddrPort]*watcher
	perAddress map[netip.Addr]int // the number of watches of each address
	total      int
	swept      time.Time
}

func newWatches(send func(netip.AddrPort, *gnrswire.Message)) *watches {
	return &watches{send: send, changed: make(chan frame.GUID, maxChanged), pending: map[frame.GUID]bool{}, byName: map[frame.GUID]map[netip.AddrPort]*watcher{}, perAddress: map[netip.Addr]int{}}
}

// add registers an address for changes of a name, and reports whether there was room.
func (w *watches) add(name frame.GUID, at netip.AddrPort, request uint32, now time.Time, lifetime time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.byName[name][at]
	if x == nil {
		source := clientaddr.Source(at.Addr()).Addr()
		if w.isFull(name, source) {
			if w.sweep(now); w.isFull(name, source) {
				return false
			}
		}
		if w.byName[name] == nil {
			w.byName[name] = map[netip.AddrPort]*watcher{}
		}
		x = &watcher{}
		w.byName[name][at] = x
		w.perAddress[source]++
		w.total++
	}
	*x = watcher{request: request, until: now.Add(lifetime)}
	return true
}

// isFull reports whether there is no room for an address to watch a name. The mutex is held.
func (w *watches) isFull(name frame.GUID, source netip.Addr) bool {
	if w.total >= maxWatches || w.perAddress[source] >= maxWatchesPerAddress || len(w.byName[name]) >= maxWatchesPerName {
		return true
	}
	programs := 0
	for at := range w.byName[name] {
		if clientaddr.Source(at.Addr()).Addr() == source {
			programs++
		}
	}
	return programs >= maxPortsPerName
}

// remove removes a watch. The mutex is held.
func (w *watches) remove(name frame.GUID, at netip.AddrPort) {
	delete(w.byName[name], at)
	if len(w.byName[name]) == 0 {
		delete(w.byName, name)
	}
	source := clientaddr.Source(at.Addr()).Addr()
	if w.perAddress[source]--; w.perAddress[source] == 0 {
		delete(w.perAddress, source)
	}
	w.total--
}

// sweep removes expired watches, once a second at most. The mutex is held.
func (w *watches) sweep(now time.Time) {
	if now.Sub(w.swept) < time.Second {
		return
	}
	w.swept = now
	for name, watchers := range w.byName {
		for at, x := range watchers {
			if now.After(x.until) {
				w.remove(name, at)
			}
		}
	}
}

// nameChanged queues a changed name for notification, once. It does not block: a change for which
// there is no room is found when the cached answers expire.
func (w *watches) nameChanged(name frame.GUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending[name] || len(w.byName[name]) == 0 {
		return
	}
	select {
	case w.changed <- name:
		w.pending[name] = true
	default:
	}
}

// notice is a notification for an address.
type notice struct {
	at      netip.AddrPort
	request uint32
}

// run sends notifications until ctx ends.
func (w *watches) run(ctx context.Context) {
	type due struct {
		name frame.GUID
		at   time.Time
	}
	waiting := make([][]due, len(repeatDelays)) // names whose notification is repeated, by the number of repetitions
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case name := <-w.changed:
			now := time.Now()
			if w.notify(name, 0, now) {
				waiting[0] = append(waiting[0], due{name, now.Add(repeatDelays[0])})
			}
		case now := <-tick.C:
			for i, all := range waiting {
				for len(all) > 0 && now.After(all[0].at) {
					name := all[0].name
					all = all[1:]
					if w.notify(name, i+1, now) && i+1 < len(repeatDelays) {
						waiting[i+1] = append(waiting[i+1], due{name, now.Add(repeatDelays[i+1])})
					}
				}
				waiting[i] = all
			}
		}
	}
}

// notify notifies the watchers of a name: all of them at first, and in repetitions those that have
// not looked the name up since. After the last repetition it removes them. It reports whether it
// has notified any watcher.
func (w *watches) notify(name frame.GUID, repetition int, now time.Time) bool {
	var all []notice
	w.mu.Lock()
	if repetition == 0 {
		delete(w.pending, name)
	}
	for at, x := range w.byName[name] {
		switch {
		case now.After(x.until):
			w.remove(name, at)
			continue
		case repetition > 0 && !x.notified:
			continue
		}
		x.notified = true
		all = append(all, notice{at, x.request})
		if repetition == len(repeatDelays) {
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

// requester returns an address in the form of messages, which support IPv4 only: for an IPv6
// address it returns 0.0.0.0 with the port.
func requester(at netip.AddrPort) gnrswire.Address {
	if a := at.Addr().Unmap(); a.Is4() {
		return gnrswire.AddrPortOf(netip.AddrPortFrom(a, at.Port()))
	}
	return gnrswire.AddrPortOf(netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port()))
}

// changedName returns the name in a notification; ok is false if the message is not one.
func changedName(m *gnrswire.Message) (name frame.GUID, ok bool) {
	for _, o := range m.Options {
		if o.Kind == optionChanged && len(o.Value) == len(name) {
			return frame.GUID(o.Value), true
		}
	}
	return name, false
}
