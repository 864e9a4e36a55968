package cinema

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

const (
	// MaxViewers bounds the viewers of one gateway, each of which may have a port of its own.
	MaxViewers = 60_000
	// reportGrace is how long a gateway's request takes precedence over reports that omit or
	// contradict it.
	reportGrace = 3 * time.Second
	// burstEvery is the least time between two bursts of a channel that a viewer already gets.
	burstEvery = 200 * time.Millisecond
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
	// unconfirmed reports whether they have been requested, and the network has not confirmed them
	// yet.
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
	ports      map[uint16]map[*viewer]bool // viewers by port: one, or several that share it
	load       load
	sharesPort bool // the gateway's viewers share a port
	// instance identifies the gateway's process; it is empty before its first event.
	instance string
	// unreachable reports whether the controller does not hear from the gateway. Nothing is copied
	// to the gateway's viewers until it does.
	unreachable bool
	// removed holds the viewers that an operator has removed, and when the gateway last
	// reported each. They stay removed while reports of them may be in flight.
	removed map[string]time.Time
	// departed holds the viewers that have left, and when. A report that lists such a viewer within
	// reportGrace was sent before the viewer left.
	departed map[string]time.Time
}

// viewerChange is a change of a viewer's channels. repeated reports whether the network had not yet
// confirmed the previous channels.
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

// portTaken reports whether viewers other than v have the port, and do not share it with v. shared
// reports whether v would share it.
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

// request carries out a gateway's request if the gateway's bounds permit it. The first of the returned
// changes is that of the viewer. The others are the removals of viewers that had its port before.
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

// markUnreachable stops the copies to a gateway's viewers until the controller hears from the gateway
// again.
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

// endpoint is a destination of a channel's copies: the port of a gateway that a viewer has there.
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

// key returns GATEWAY/ID, which identifies the viewer among those of all gateways.
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

// copyTo identifies a copy of a channel to a port of a gateway.
type copyTo struct {
	channel string
	port    uint16
}

// load counts what is copied to one gateway.
type load struct {
	viewers map[copyTo]int // viewers that share each copy
	copies  map[string]int // copies of each channel
}

func newLoad() load { return load{map[copyTo]int{}, map[string]int{}} }

// add adds n viewers of each channel at a port; n is 1 or -1.
func (l *load) add(channels []string, port uint16, n int) {
	for _, c := range channels {
		to := copyTo{c, port}
		before := l.viewers[to]
		switch l.viewers[to] = before + n; {
		case before == 0:
			l.copies[c]++
		case before+n == 0:
			delete(l.viewers, to)
			if l.copies[c]--; l.copies[c] == 0 {
				delete(l.copies, c)
			}
		}
	}
}

// sum returns the bit rate of all copies together.
func (l *load) sum(rate func(channel string) uint64) (sum uint64) {
	for c, n := range l.copies {
		sum += uint64(n) * rate(c)
	}
	return sum
}

// delta returns the bit rates of the copies that are added and removed when a viewer changes
// from some channels at one port to others at another port.
func (l *load) delta(from uint16, before []string, to uint16, after []string, rate func(string) uint64) (added, gone uint64) {
	same := func(c string, channels []string) bool { return from == to && slices.Contains(channels, c) }
	for _, c := range after {
		if l.viewers[copyTo{c, to}] == 0 {
			added += rate(c)
		}
	}
	for _, c := range before {
		if l.viewers[copyTo{c, from}] == 1 && !same(c, after) {
			gone += rate(c)
		}
	}
	return added, gone
}

// bounds limits the viewers of a gateway: their number, and by the capacity of the gateway's port the
// bit rate of their channels. rate returns the declared bit rate of a channel.
type bounds struct {
	viewers int
	port    portCapacity
	rate    func(channel string) uint64
}

// fits returns an error if the gateway's own port has no room for a viewer with these channels.
// A change that takes no more of the port than before always fits. t.mu is held.
func (t *viewers) fits(g *gatewayState, v *viewer, port uint16, channels []string, b *bounds) error {
	if b.port.most == 0 {
		return nil
	}
	added, gone := g.load.delta(v.port, v.channels, port, channels, b.rate)
	if added <= gone {
		return nil
	}
	return b.port.check(t.taken(b)-gone, added)
}

// taken returns the bit rate that channels take of a gateway's port. t.mu is held.
func (t *viewers) taken(b *bounds) (sum uint64) {
	for _, name := range b.port.gateways {
		if g := t.gateways[name]; g != nil {
			sum += g.load.sum(b.rate)
		}
	}
	return sum
}

// sharesPort reports whether the viewers of a gateway share a port. An additional viewer may then
// need no further copy of a channel.
func (t *viewers) sharesPort(gateway string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.gateways[gateway]
	return g != nil && g.sharesPort
}

// roomForDouble reports whether the port of a gateway has room for twice what is copied to it.
func (t *viewers) roomForDouble(b bounds) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := t.taken(&b)
	return b.port.check(taken, taken) == nil
}

// refusal is the error of a request to change a viewer's channels. It names a field of the request, the
// field's value, and what the value should be.
type refusal struct {
	field string
	value any
	want  string
}

// Error implements error.
func (r *refusal) Error() string { return fmt.Sprintf("%s %v: want %s", r.field, r.value, r.want) }

// viewerLimit returns how many viewers a gateway accepts.
func viewerLimit(st *agents.State) int { return cmp.Or(st.Limit(), MaxViewers) }

// diff returns the channels that a change of a viewer affects: those that are new or not
// confirmed yet, and those that are removed.
func (x *viewerChange) diff() (added, removed []string) {
	for _, c := range x.after {
		if x.repeated || !slices.Contains(x.before, c) {
			added = append(added, c)
		}
	}
	for _, c := range x.before {
		if !slices.Contains(x.after, c) {
			removed = append(removed, c)
		}
	}
	return added, removed
}

// applyRecords ends the old channels of viewers that have changed channel according to their gateway's
// records. A record applies only to the viewer's last grant, so that it does not end a channel which
// the viewer has requested since. If a record is lost, the gateway's next report ends the old channel.
func (t *viewers) applyRecords(gateway string, all []gatewayapi.ViewerEvent) (out []viewerChange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.gateways[gateway]
	if g == nil {
		return nil
	}
	for i := range all {
		e := &all[i]
		v := g.viewers[e.Viewer]
		if v != nil && e.What == "changed" && e.Grant != 0 && e.Grant == v.grant && len(v.channels) > 1 && v.channels[0] == e.Channel {
			out = append(out, t.setChannels(g, v, v.channels[:1:1]))
		}
	}
	return out
}

// applyReport updates the viewers of a gateway from its report, which lists all of them. A
// viewer gets a channel that its gateway has not requested only if may returns true; b bounds
// the viewers. It returns the changes, and whether the gateway was unreachable before.
func (t *viewers) applyReport(gateway, instance string, all []gatewayapi.Viewer, b bounds, now time.Time, may func(channel string) bool) (out []viewerChange, back bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.gateway(gateway)
	if g.instance != instance && g.instance != "" {
		for _, v := range g.viewers { // the new process has other viewers, some of which it may have requested already
			if now.Sub(v.requestedAt) >= reportGrace {
				out = append(out, t.setChannels(g, v, nil))
			}
		}
		clear(g.removed)
	}
	back = g.unreachable
	g.instance, g.unreachable = instance, false
	listed := make(map[string]bool, len(all))
	for i := range all {
		if told := &all[i]; validReport(told) && !listed[told.ID] && len(listed) < min(b.viewers, MaxViewers) {
			listed[told.ID] = true
			if x, ok := t.applyViewerReport(g, gateway, told, &b, now, may); ok {
				out = append(out, x)
			}
		}
	}
	for id, v := range g.viewers {
		last := v.reportedAt
		if v.requestedAt.After(last) {
			last = v.requestedAt
		}
		if !listed[id] && now.Sub(last) >= reportGrace {
			out = append(out, t.setChannels(g, v, nil))
		}
	}
	for id := range g.removed {
		if listed[id] {
			g.removed[id] = now
		}
	}
	maps.DeleteFunc(g.removed, func(_ string, at time.Time) bool { return now.Sub(at) >= reportGrace })
	maps.DeleteFunc(g.departed, func(_ string, at time.Time) bool { return now.Sub(at) >= reportGrace })
	return out, back
}

// applyViewerReport updates one viewer from its gateway's report, and reports whether its
// channels or port have changed. t.mu is held.
func (t *viewers) applyViewerReport(g *gatewayState, gateway string, told *gatewayapi.Viewer, b *bounds, now time.Time, may func(string) bool) (x viewerChange, ok bool) {
	v := g.viewers[told.ID]
	if v == nil && (!g.removed[told.ID].IsZero() || now.Sub(g.departed[told.ID]) < reportGrace || g.portTaken(nil, told.Port, told.Shared) || len(g.viewers) >= min(b.viewers, MaxViewers)) {
		return x, false
	}
	if v == nil {
		v = &viewer{gateway: gateway, id: told.ID}
	}
	v.reported, v.reportedAt = *told, now
	if v.port == told.Port && slices.Equal(v.channels, told.Channels) || now.Sub(v.requestedAt) < reportGrace {
		return x, false
	}
	if g.portTaken(v, told.Port, told.Shared) {
		return x, false
	}
	var channels []string
	for _, c := range told.Channels {
		if slices.Contains(v.channels, c) || may(c) {
			channels = append(channels, c)
		}
	}
	if v.port == told.Port && slices.Equal(v.channels, channels) || t.fits(g, v, told.Port, channels, b) != nil {
		return x, false
	}
	v.unconfirmed = true // the gateway may request the same before the network has confirmed it
	return t.update(g, v, told.Port, told.Shared, channels, v.requestedAt), true
}

// validReport reports whether a viewer's report is well-formed.
func validReport(v *gatewayapi.Viewer) bool {
	n := len(v.Channels)
	return viewerID.MatchString(v.ID) && v.Port >= minPort && n > 0 && n <= gatewayapi.MaxWatched &&
		!(n == 2 && v.Channels[0] == v.Channels[1]) && !slices.ContainsFunc(v.Channels, func(c string) bool { return !channelName.MatchString(c) })
}

// kind names the kind of a change: join, change or leave.
func (x *viewerChange) kind() string {
	switch {
	case len(x.before) == 0:
		return "join"
	case len(x.after) == 0:
		return "leave"
	}
	return "change"
}
