package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/cinema/gatewayapi"
)

const (
	// MaxViewers bounds the viewers of one gateway, which may have a port for each.
	MaxViewers = 60_000
	// goneAfter is how long a gateway may not tell of a viewer that it has asked for, or
	// tell otherwise than it has asked, until that counts.
	goneAfter = 3 * time.Second
	// leastPort is the lowest port that a viewer may have.
	leastPort = 1024
)

var viewerID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// viewer is who watches, by which gateway, and what.
type viewer struct {
	gateway, id string
	port        uint16
	shared      bool // others may have the port too
	// channels are those that it gets. The list is replaced when it changes. unsure says that
	// its gateway has asked for them, and the network has not confirmed it.
	channels []string
	unsure   bool
	// told is what its gateway has told last, seen when; asked is when it has asked.
	told        gatewayapi.Viewer
	seen, asked time.Time
	// burst is when it was sent again what it gets already.
	burst time.Time
}

// gate is an egress gateway with its viewers.
type gate struct {
	viewers map[string]*viewer
	ports   map[uint16]map[*viewer]bool // one viewer, or several that share it
	load    load
	shared  bool // its viewers share a port
	// instance is that of its events; empty before the first.
	instance string
	// away says that what it does is over until it is heard again: its viewers are not
	// copied to meanwhile.
	away bool
	// ended are those that an operator has removed, and when it last told of them; for as long as
	// what it has told may be under way, they stay so.
	ended map[string]time.Time
	// left are those that it has had leave, and when: what it tells of them meanwhile is older.
	left map[string]time.Time
}

// changed is what has become of a viewer; before and after are its channels. again says that
// what was before has not been confirmed.
type changed struct {
	viewer
	before, after []string
	again         bool
}

// viewers are those of all gateways. Methods may be called concurrently.
type viewers struct {
	mu    sync.Mutex
	gates map[string]*gate
	of    map[string]map[*viewer]bool // by channel
}

func newViewers() *viewers {
	return &viewers{gates: map[string]*gate{}, of: map[string]map[*viewer]bool{}}
}

// gate is that of a name. The lock is held.
func (t *viewers) gate(name string) *gate {
	g := t.gates[name]
	if g == nil {
		g = &gate{viewers: map[string]*viewer{}, ports: map[uint16]map[*viewer]bool{}, load: newLoad(), ended: map[string]time.Time{}, left: map[string]time.Time{}}
		t.gates[name] = g
	}
	return g
}

// put has a viewer get channels, none: it is gone. The lock is held.
func (t *viewers) put(g *gate, v *viewer, channels []string) changed {
	x := changed{before: v.channels, after: channels}
	for _, c := range v.channels {
		if delete(t.of[c], v); len(t.of[c]) == 0 {
			delete(t.of, c)
		}
	}
	g.load.add(v.channels, v.port, -1)
	g.load.add(channels, v.port, 1)
	v.channels = channels
	for _, c := range channels {
		if t.of[c] == nil {
			t.of[c] = map[*viewer]bool{}
		}
		t.of[c][v] = true
	}
	g.vacate(v)
	delete(g.viewers, v.id)
	if len(channels) > 0 {
		g.viewers[v.id] = v
		if g.ports[v.port] == nil {
			g.ports[v.port] = map[*viewer]bool{}
		}
		g.ports[v.port][v] = true
	}
	x.viewer = *v
	return x
}

// vacate has a viewer have its port no longer.
func (g *gate) vacate(v *viewer) {
	if delete(g.ports[v.port], v); len(g.ports[v.port]) == 0 {
		delete(g.ports, v.port)
	}
}

// taken says whether a viewer cannot have a port beside those who have it.
func (g *gate) taken(v *viewer, port uint16, shared bool) bool {
	for other := range g.ports[port] {
		if other != v {
			return !shared || !other.shared // like all that have it
		}
	}
	return false
}

// current are the channels of a viewer.
func (t *viewers) current(w *gatewayapi.Wanted) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v := t.gate(w.Gateway).viewers[w.Viewer]; v != nil {
		return v.channels
	}
	return nil
}

// want does what a gateway asks for, if that is within its bounds. What has become of the
// viewer comes first; then what has become of those who had its port before, and are gone.
func (t *viewers) want(w *gatewayapi.Wanted, b bounds, now time.Time) ([]changed, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.gate(w.Gateway)
	v := g.viewers[w.Viewer]
	switch {
	case len(w.Channels) == 0 && v == nil:
		delete(g.ended, w.Viewer)
		return nil, nil
	case len(w.Channels) == 0:
		if len(g.left) < MaxViewers {
			g.left[w.Viewer] = now
		}
		return []changed{t.put(g, v, nil)}, nil
	case !g.ended[w.Viewer].IsZero():
		return nil, &refusal{"viewer", w.Viewer, "another one: an operator has removed this"}
	case g.away:
		return nil, &refusal{"gateway", w.Gateway, "another gateway: the controller does not hear from this one, and has nothing copied to it until it does; its control address has to be reached"}
	case v == nil && len(g.viewers) >= min(b.viewers, MaxViewers):
		return nil, &refusal{"gateway", w.Gateway, fmt.Sprintf("a gateway with room: this one has %d viewers, as many as it takes", len(g.viewers))}
	case v == nil:
		v = &viewer{gateway: w.Gateway, id: w.Viewer, told: gatewayapi.Viewer{Since: now.UTC()}}
	}
	if err := t.fits(g, v, w.Port, w.Channels, &b); err != nil {
		return nil, &refusal{"gateway", w.Gateway, "a gateway whose own port has room: " + err.Error()}
	}
	var evicted []changed
	if g.taken(v, w.Port, w.Shared) {
		for _, other := range slices.Collect(maps.Keys(g.ports[w.Port])) {
			if other != v {
				evicted = append(evicted, t.put(g, other, nil))
			}
		}
	}
	delete(g.left, w.Viewer)
	again := v.unsure
	v.unsure = true
	x := t.set(g, v, w.Port, w.Shared, w.Channels, now)
	x.again = again
	return append([]changed{x}, evicted...), nil
}

// sure notes that the network has confirmed a change, unless there has been another one since.
func (t *viewers) sure(x changed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v := t.gate(x.gateway).viewers[x.id]; v != nil && slices.Equal(v.channels, x.after) {
		v.unsure = false
	}
}

// again says whether a viewer may be sent once more what it gets already.
func (t *viewers) again(w *gatewayapi.Wanted, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.gate(w.Gateway).viewers[w.Viewer]
	if v == nil || now.Sub(v.burst) < burstEvery {
		return false
	}
	v.burst = now
	return true
}

// set has a viewer get channels at a port. The lock is held.
func (t *viewers) set(g *gate, v *viewer, port uint16, shared bool, channels []string, asked time.Time) changed {
	g.vacate(v)
	g.load.add(v.channels, v.port, -1)
	g.load.add(v.channels, port, 1)
	v.port, v.shared, v.asked, g.shared = port, shared, asked, shared
	return t.put(g, v, slices.Clone(channels))
}

// back undoes a change, unless there has been another one since.
func (t *viewers) back(x changed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.gate(x.gateway)
	if v := g.viewers[x.id]; v != nil && slices.Equal(v.channels, x.after) {
		t.put(g, v, x.before)
	}
}

// leave ends what a gateway does until it is heard again; forget forgets it.
func (t *viewers) leave(gateway string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.gates[gateway]; g != nil {
		g.away = true
	}
}

func (t *viewers) forget(gateway string) (out []changed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.gates[gateway]; g != nil {
		for _, v := range g.viewers {
			out = append(out, t.put(g, v, nil))
		}
		delete(t.gates, gateway)
	}
	return out
}

// end ends the viewer of an identifier, at whatever gateway.
func (t *viewers) end(id string) (changed, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.gates {
		if v := g.viewers[id]; v != nil {
			g.ended[id] = time.Now()
			return t.put(g, v, nil), true
		}
	}
	return changed{}, false
}

// watching is where a channel goes: a viewer's port of a gateway.
type watching struct {
	gateway string
	port    uint16
}

// watch lists who watches a channel, by gateways that are there.
func (t *viewers) watch(channel string) []watching {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]watching, 0, len(t.of[channel]))
	for v := range t.of[channel] {
		if !t.gates[v.gateway].away {
			out = append(out, watching{v.gateway, v.port})
		}
	}
	return out
}

// count is how many viewers a channel has, at the gateways that are there.
func (t *viewers) count(channel string) int { return len(t.watch(channel)) }

// at is how many viewers a gateway has.
func (t *viewers) at(gateway string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.gates[gateway]; g != nil {
		return len(g.viewers)
	}
	return 0
}

// heard says whether a gateway has told of its viewers.
func (t *viewers) heard(gateway string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.gates[gateway]
	return g != nil && g.instance != ""
}

// key is how a viewer is called among all.
func (v viewer) key() string { return v.gateway + "/" + v.id }

// list are all viewers, in the order of their keys.
func (t *viewers) list() []viewer {
	out := t.present()
	slices.SortFunc(out, func(a, b viewer) int {
		if a.gateway == b.gateway {
			return cmp.Compare(a.id, b.id)
		}
		return cmp.Compare(a.gateway+"/", b.gateway+"/")
	})
	return out
}

func (t *viewers) present() (out []viewer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.gates {
		for _, v := range g.viewers {
			if !g.away {
				out = append(out, *v)
			}
		}
	}
	return out
}
