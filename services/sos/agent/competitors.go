package agent

import (
	"net/netip"

	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// weight returns the weight of a session among those on its path, or of its client.
func (s *session) weight() float64 { return float64(max(s.params.Weight, 1)) }

// fairGroup identifies the sessions that count as one when the rate of a path is divided: those of a
// client, or a single session.
type fairGroup struct {
	client  netip.Addr
	session *session
}

// fairGroup returns the group of a session.
func (s *session) fairGroup() fairGroup {
	if s.params.Fairness == agentapi.FairnessClient {
		return fairGroup{client: s.req.Client.Addr()}
	}
	return fairGroup{session: s}
}

// competitors holds sessions that would each send as much as they may. It says what a further one
// gets without a new division of the whole rate. The zero value holds none.
type competitors struct {
	sessions map[*session]bool
	groups   map[fairGroup]groupWeight
	weight   float64 // sum of the weights of the groups
}

// groupWeight holds the weights of a group.
type groupWeight struct {
	heaviest float64 // the weight of the group among groups: that of its heaviest session
	sum      float64 // sum of the weights of its sessions
}

// add adds a session, unless it has been added before.
func (x *competitors) add(s *session) {
	if x.sessions[s] {
		return
	}
	if x.sessions == nil {
		x.sessions, x.groups = map[*session]bool{}, map[fairGroup]groupWeight{}
	}
	x.sessions[s] = true
	g := x.groups[s.fairGroup()]
	heaviest := max(g.heaviest, s.weight())
	x.weight += heaviest - g.heaviest
	x.groups[s.fairGroup()] = groupWeight{heaviest, g.sum + s.weight()}
}

// share returns the part of the rate that a session gets which has been added.
func (x *competitors) share(s *session) float64 {
	g := x.groups[s.fairGroup()]
	return g.heaviest / x.weight * s.weight() / g.sum
}
