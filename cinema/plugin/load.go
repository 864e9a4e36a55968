package plugin

import (
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/service/agents"
)

// portPercent is what of a gateway's own port channels may take. The rest is for what comes
// with them: headers, bursts, and what the gateway says to others.
const portPercent = 90

// copyTo is a copy of a channel, to a port of a gateway.
type copyTo struct {
	channel string
	port    uint16
}

// load is what is copied to one gateway.
type load struct {
	viewers map[copyTo]int // that share a copy
	copies  map[string]int // of each channel
}

func newLoad() load { return load{map[copyTo]int{}, map[string]int{}} }

// add counts one viewer more of each channel at a port, or one less (-1).
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

// sum is what all copies take.
func (l *load) sum(rate func(channel string) uint64) (sum uint64) {
	for c, n := range l.copies {
		sum += uint64(n) * rate(c)
	}
	return sum
}

// moved is what the copies that are new, and those that are gone, take when a viewer at one
// port with some channels is at another one with others.
func (l *load) moved(from uint16, before []string, to uint16, after []string, rate func(string) uint64) (added, gone uint64) {
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

// portRoom is what channels may take of the port at which gateways stand. The zero value is
// that of a port of which nothing is known, where there is room.
type portRoom struct {
	at network.PortRef
	// most is in bit/s; zero: the port's capacity is not known.
	most uint64
	// gateways are those of one kind that stand there, by name.
	gateways []string
}

// lacks says why the port has no room for a rate, beside what is taken of it, or nil.
func (r *portRoom) lacks(taken, rate uint64) error {
	if r.most == 0 || taken+rate <= r.most {
		return nil
	}
	return &noRoom{r.at, rate, r.most - min(r.most, taken), r.most}
}

// noRoom says which port of a gateway lacks room for a channel.
type noRoom struct {
	at network.PortRef
	// rate is what was wanted, left what channels may still send, all what they may together.
	rate, left, all uint64
}

// Error implements error.
func (e *noRoom) Error() string {
	return fmt.Sprintf("port %v: %s wanted, %s of the %s for channels are left",
		e.at, units.FormatRate(float64(e.rate)), units.FormatRate(float64(e.left)), units.FormatRate(float64(e.all)))
}

// roomAt is what channels may take of the port of a gateway, which it shares with those of its
// kind that stand there too.
func roomAt[C any](c *core, of *agents.Agent[C], all []*agents.Agent[C]) (r portRoom) {
	at := func(a *agents.Agent[C]) network.PortRef {
		st := a.State()
		p, _, _ := c.place(&st) // the zero value where it has not been found
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

// rate is what a channel may send, in bit/s; zero if there is no such channel.
func (c *core) rate(channel string) uint64 {
	x, _ := c.Channels.Item(channel)
	return uint64(x.Value.BitRate)
}

// bounds are those of the viewers of a gateway.
type bounds struct {
	viewers int
	port    portRoom
	rate    func(channel string) uint64
}

// bounds are those of an egress gateway.
func (s *Service) bounds(a *egressGateway) bounds {
	st := a.State()
	return bounds{limit(&st), roomAt(s.core, a, s.egress.List()), s.rate}
}

// fits says why a viewer cannot have channels at a port of its gateway, or nil. What takes no
// more of the gateway's own port than before always fits. The lock is held.
func (t *viewers) fits(g *gate, v *viewer, port uint16, channels []string, b *bounds) error {
	if b.port.most == 0 {
		return nil
	}
	added, gone := g.load.moved(v.port, v.channels, port, channels, b.rate)
	if added <= gone {
		return nil
	}
	return b.port.lacks(t.taken(b)-gone, added)
}

// taken is what channels take of the port of a gateway. The lock is held.
func (t *viewers) taken(b *bounds) (sum uint64) {
	for _, name := range b.port.gateways {
		if g := t.gates[name]; g != nil {
			sum += g.load.sum(b.rate)
		}
	}
	return sum
}

// share says whether the viewers of a gateway share a port: one more may cost nothing.
func (t *viewers) share(gateway string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.gates[gateway]
	return g != nil && g.shared
}

// room is how many viewers more a gateway takes, if each is to see the channel that takes most.
func (s *Service) room(a *egressGateway) int {
	b := s.bounds(a)
	room := max(0, b.viewers-s.viewers.at(a.Name))
	if b.port.most == 0 || s.viewers.share(a.Name) {
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
		return 0 // none fits
	}
	s.viewers.mu.Lock()
	defer s.viewers.mu.Unlock()
	left := b.port.most - min(b.port.most, s.viewers.taken(&b))
	return int(min(uint64(room), left/greatest))
}
