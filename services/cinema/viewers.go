package cinema

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

const (
	// MaxViewers bounds the viewers of one gateway, each of which may have a port of its own.
	MaxViewers = 60_000
	// reportGrace is how long a gateway's request takes precedence over reports that omit or
	// contradict it.
	reportGrace = 3 * time.Second
	// minPort is the lowest port that a viewer may have.
	minPort = 1024
)

var viewerID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// viewer is a viewer, its gateway and its channels.
type viewer struct {
	gateway, id string
	port        uint16
	sharesPort  bool // other viewers may have the same port
	// channels holds the channels that are copied to the viewer. A change replaces the slice.
	// unconfirmed says that the gateway has requested them, and the network has not confirmed
	// them yet.
	channels    []string
	unconfirmed bool
	// reported is the gateway's last report, received at reportedAt; requestedAt is when the
	// gateway last sent a request.
	reported                gatewayapi.Viewer
	reportedAt, requestedAt time.Time
	// grant is the number of the gateway's last request that was granted.
	grant uint64
	// burstAt is when a burst of the current channel was last repeated.
	burstAt time.Time
}

// gatewayState is an egress gateway with its viewers.
type gatewayState struct {
	viewers    map[string]*viewer
	ports      map[uint16]map[*viewer]bool // one viewer, or several that share the port
	load       load
	sharesPort bool // the gateway's viewers share a port
	// instance identifies the gateway's process; it is empty before its first event.
	instance string
	// unreachable says that nothing is copied to the gateway's viewers until it is heard again.
	unreachable bool
	// removed holds the viewers that an operator has removed, and when the gateway last
	// reported each. They stay removed while reports of them may be in flight.
	removed map[string]time.Time
	// departed holds the viewers that have left, and when. Reports of them within reportGrace
	// are older than that.
	departed map[string]time.Time
}

// viewerChange is a change of a viewer's channels. repeated says that the channels before were
// not confirmed.
type viewerChange struct {
	viewer
	before, after []string
	repeated      bool
}

// viewers holds the viewers of all gateways. It is safe for concurrent use.
type viewers struct {
	mu        sync.Mutex
	gateways  map[string]*gatewayState
	byChannel map[string]map[*viewer]bool // by channel
	grants    uint64                      // number of the last grant
}

func newViewers() *viewers {
	return &viewers{gateways: map[string]*gatewayState{}, byChannel: map[string]map[*viewer]bool{}}
}

// gateway returns the state of a gateway. t.mu is held.
func (t *viewers) gateway(name string) *gatewayState {
	g := t.gateways[name]
	if g == nil {
		g = &gatewayState{viewers: map[string]*viewer{}, ports: map[uint16]map[*viewer]bool{}, load: newLoad(), removed: map[string]time.Time{}, departed: map[string]time.Time{}}
		t.gateways[name] = g
	}
	return g
}

// setChannels sets the channels a viewer receives; an empty list removes the viewer. t.mu is
// held.
func (t *viewers) setChannels(g *gatewayState, v *viewer, channels []string) viewerChange {
	x := viewerChange{before: v.channels, after: channels}
	for _, c := range v.channels {
		if delete(t.byChannel[c], v); len(t.byChannel[c]) == 0 {
			delete(t.byChannel, c)
		}
	}
	g.load.add(v.channels, v.port, -1)
	g.load.add(channels, v.port, 1)
	v.channels = channels
	for _, c := range channels {
		if t.byChannel[c] == nil {
			t.byChannel[c] = map[*viewer]bool{}
		}
		t.byChannel[c][v] = true
	}
	g.releasePort(v)
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

// releasePort removes a viewer from its port.
func (g *gatewayState) releasePort(v *viewer) {
	if delete(g.ports[v.port], v); len(g.ports[v.port]) == 0 {
		delete(g.ports, v.port)
	}
}

// portTaken reports whether other viewers have the port and do not share it.
func (g *gatewayState) portTaken(v *viewer, port uint16, shared bool) bool {
	for other := range g.ports[port] {
		if other != v {
			return !shared || !other.sharesPort // all viewers of a port share it, or there is only one
		}
	}
	return false
}

// channelsOf returns the present channels of a viewer.
func (t *viewers) channelsOf(w *gatewayapi.Wanted) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v := t.gateway(w.Gateway).viewers[w.Viewer]; v != nil {
		return v.channels
	}
	return nil
}

// request carries out a gateway's request within its bounds. The first change is that of the
// viewer; the others are of viewers that had its port before and have been removed.
func (t *viewers) request(w *gatewayapi.Wanted, b bounds, now time.Time) ([]viewerChange, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.gateway(w.Gateway)
	v := g.viewers[w.Viewer]
	switch {
	case len(w.Channels) == 0 && v == nil:
		delete(g.removed, w.Viewer)
		return nil, nil
	case len(w.Channels) == 0:
		if len(g.departed) < MaxViewers {
			g.departed[w.Viewer] = now
		}
		return []viewerChange{t.setChannels(g, v, nil)}, nil
	case !g.removed[w.Viewer].IsZero():
		return nil, &refusal{"viewer", w.Viewer, "another one: an operator has removed this"}
	case g.unreachable:
		return nil, &refusal{"gateway", w.Gateway, "another gateway: the controller does not hear from this one, and has nothing copied to it until it does; its control address has to be reached"}
	case v == nil && len(g.viewers) >= min(b.viewers, MaxViewers):
		return nil, &refusal{"gateway", w.Gateway, fmt.Sprintf("a gateway with room: this one has %d viewers, as many as it takes", len(g.viewers))}
	case v == nil:
		v = &viewer{gateway: w.Gateway, id: w.Viewer, reported: gatewayapi.Viewer{Since: now.UTC()}}
	}
	if err := t.fits(g, v, w.Port, w.Channels, &b); err != nil {
		return nil, &refusal{"gateway", w.Gateway, "a gateway whose own port has room: " + err.Error()}
	}
	var evicted []viewerChange
	if g.portTaken(v, w.Port, w.Shared) {
		for _, other := range slices.Collect(maps.Keys(g.ports[w.Port])) {
			if other != v {
				evicted = append(evicted, t.setChannels(g, other, nil))
			}
		}
	}
	delete(g.departed, w.Viewer)
	again := v.unconfirmed
	v.unconfirmed = true
	t.grants++
	v.grant = t.grants
	x := t.update(g, v, w.Port, w.Shared, w.Channels, now)
	x.repeated = again
	return append([]viewerChange{x}, evicted...), nil
}

// confirm records that the network has confirmed a change, unless a later change has replaced
// it.
func (t *viewers) confirm(x viewerChange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v := t.gateway(x.gateway).viewers[x.id]; v != nil && slices.Equal(v.channels, x.after) {
		v.unconfirmed = false
	}
}

// allowRepeatedBurst reports whether a burst of a channel that a viewer already gets may be
// sent again, and records the time.
func (t *viewers) allowRepeatedBurst(w *gatewayapi.Wanted, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.gateway(w.Gateway).viewers[w.Viewer]
	if v == nil || now.Sub(v.burstAt) < burstEvery {
		return false
	}
	v.burstAt = now
	return true
}

// update sets a viewer's port and channels. t.mu is held.
func (t *viewers) update(g *gatewayState, v *viewer, port uint16, shared bool, channels []string, asked time.Time) viewerChange {
	g.releasePort(v)
	g.load.add(v.channels, v.port, -1)
	g.load.add(v.channels, port, 1)
	v.port, v.sharesPort, v.requestedAt, g.sharesPort = port, shared, asked, shared
	return t.setChannels(g, v, slices.Clone(channels))
}

// rollback undoes a change, unless a later change has replaced it.
func (t *viewers) rollback(x viewerChange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.gateway(x.gateway)
	if v := g.viewers[x.id]; v != nil && slices.Equal(v.channels, x.after) {
		t.setChannels(g, v, x.before)
	}
}

// markUnreachable stops the copies to a gateway's viewers until the gateway is heard again.
func (t *viewers) markUnreachable(gateway string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.gateways[gateway]; g != nil {
		g.unreachable = true
	}
}

func (t *viewers) removeGateway(gateway string) (out []viewerChange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.gateways[gateway]; g != nil {
		for _, v := range g.viewers {
			out = append(out, t.setChannels(g, v, nil))
		}
		delete(t.gateways, gateway)
	}
	return out
}

// remove removes a viewer on behalf of an operator.
func (t *viewers) remove(id string) (viewerChange, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.gateways {
		if v := g.viewers[id]; v != nil {
			g.removed[id] = time.Now()
			return t.setChannels(g, v, nil), true
		}
	}
	return viewerChange{}, false
}

// endpoint is where a channel is copied to: a viewer's port of a gateway.
type endpoint struct {
	gateway string
	port    uint16
}

// endpoints lists the endpoints of a channel at reachable gateways, one for each viewer.
func (t *viewers) endpoints(channel string) []endpoint {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]endpoint, 0, len(t.byChannel[channel]))
	for v := range t.byChannel[channel] {
		if !t.gateways[v.gateway].unreachable {
			out = append(out, endpoint{v.gateway, v.port})
		}
	}
	return out
}

// countWatching returns how many viewers a channel has at reachable gateways.
func (t *viewers) countWatching(channel string) int { return len(t.endpoints(channel)) }

// countAt returns how many viewers a gateway has.
func (t *viewers) countAt(gateway string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.gateways[gateway]; g != nil {
		return len(g.viewers)
	}
	return 0
}

// hasReported reports whether a gateway has reported its viewers.
func (t *viewers) hasReported(gateway string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.gateways[gateway]
	return g != nil && g.instance != ""
}

// key returns the name of a viewer among those of all gateways.
func (v viewer) key() string { return v.gateway + "/" + v.id }

// list returns all viewers of reachable gateways, ordered by key.
func (t *viewers) list() []viewer {
	out := t.snapshot()
	slices.SortFunc(out, func(a, b viewer) int {
		if a.gateway == b.gateway {
			return cmp.Compare(a.id, b.id)
		}
		return cmp.Compare(a.gateway+"/", b.gateway+"/")
	})
	return out
}

func (t *viewers) snapshot() (out []viewer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.gateways {
		for _, v := range g.viewers {
			if !g.unreachable {
				out = append(out, *v)
			}
		}
	}
	return out
}
