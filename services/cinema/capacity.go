package cinema

import (
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/network"
)

// portPercent is the share of a gateway's own port that channels may take, in percent. The rest
// is for headers, bursts, and the gateway's other traffic.
const portPercent = 90

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

// portCapacity holds what channels may take of the port at which gateways are attached. The
// zero value is a port about which nothing is known; it always has room.
type portCapacity struct {
	at network.PortRef
	// most is in bit/s; zero means that the port's capacity is not known.
	most uint64
	// gateways names the gateways of one kind that are attached there.
	gateways []string
}

// check returns an error if the port has no room for a rate beside what is taken already.
func (r *portCapacity) check(taken, rate uint64) error {
	if r.most == 0 || taken+rate <= r.most {
		return nil
	}
	return &noRoomError{r.at, rate, r.most - min(r.most, taken), r.most}
}

// noRoomError names the port of a gateway that lacks room for a channel.
type noRoomError struct {
	at network.PortRef
	// rate was requested, left is what channels may still take, and all what they may take
	// together, in bit/s.
	rate, left, all uint64
}

// Error implements error.
func (e *noRoomError) Error() string {
	return fmt.Sprintf("port %v: %s wanted, %s of the %s for channels are left",
		e.at, units.FormatRate(float64(e.rate)), units.FormatRate(float64(e.left)), units.FormatRate(float64(e.all)))
}

// capacityAt returns what channels may take of a gateway's port, which the gateway shares with
// others of its kind that are attached there.
func capacityAt[C any](c *core, of *agents.Agent[C], all []*agents.Agent[C]) (r portCapacity) {
	at := func(a *agents.Agent[C]) network.PortRef {
		st := a.State()
		p, _, _ := c.place(&st) // the zero value if the gateway has not been located
		return p.At
	}
	r.at = at(of)
	if r.at.IsZero() {
		return r
	}
	r.most = c.Network.Capacity(r.at) / 100 * portPercent
	for _, other := range all {
		if at(other) == r.at {
			r.gateways = append(r.gateways, other.Name)
		}
	}
	return r
}

// rate returns the declared bit rate of a channel in bit/s, or zero if there is no such
// channel.
func (c *core) rate(channel string) uint64 {
	x, _ := c.Channels.Item(channel)
	return uint64(x.Value.BitRate)
}

// bounds limits the viewers of a gateway.
type bounds struct {
	viewers int
	port    portCapacity
	rate    func(channel string) uint64
}

// bounds returns the limits of an egress gateway.
func (s *Service) bounds(a *egressGateway) bounds {
	st := a.State()
	return bounds{viewerLimit(&st), capacityAt(s.core, a, s.egress.List()), s.rate}
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

// sharesPort reports whether the viewers of a gateway share a port. One more of them may then
// need no further copy.
func (t *viewers) sharesPort(gateway string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.gateways[gateway]
	return g != nil && g.sharesPort
}

// room returns how many more viewers a gateway takes if each of them watches the channel with
// the highest bit rate.
func (s *Service) room(a *egressGateway) int {
	b := s.bounds(a)
	room := max(0, b.viewers-s.viewers.countAt(a.Name))
	if b.port.most == 0 || s.viewers.sharesPort(a.Name) {
		return room
	}
	greatest := uint64(0)
	channels := s.Channels.Items()
	for i := range channels {
		if rate := uint64(channels[i].Value.BitRate); rate <= b.port.most {
			greatest = max(greatest, rate)
		}
	}
	switch {
	case len(channels) == 0:
		return room
	case greatest == 0:
		return 0 // no channel fits
	}
	s.viewers.mu.Lock()
	defer s.viewers.mu.Unlock()
	left := b.port.most - min(b.port.most, s.viewers.taken(&b))
	return int(min(uint64(room), left/greatest))
}

// roomForDouble reports whether the port of a gateway has room for twice what is copied to it.
func (t *viewers) roomForDouble(b bounds) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := t.taken(&b)
	return b.port.check(taken, taken) == nil
}
