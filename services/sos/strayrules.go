package sos

import (
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
)

// StrayRules returns the rules that send to the controller the packets that an agent sends from its
// session ports. The rules of sessions have a higher priority. Therefore no packet that an agent
// sends outside a session reaches an end host, and no switch caches a decision to forward such a
// packet, which packets of the next session might then follow.
//
// If a switch can match TCP flags, there is one rule for segments with SYN and one for segments
// without. Flags are not part of the flows that Open vSwitch has cached for a session. When the
// session's rules are removed, Open vSwitch therefore discards these flows, instead of turning them
// into decisions of the stray rules that stay cached for ten more seconds.
func StrayRules(at network.PortRef, agent netip.Addr, ports control.PortRange, flags bool) ([]network.Rule, error) {
	segments := [][]openflow.OXM{nil}
	if flags {
		segments = [][]openflow.OXM{{openflow.TCPFlags(tcpSYN, tcpSYN)}, {openflow.TCPFlags(0, tcpSYN)}}
	}
	var rules []network.Rule
	for _, b := range PortRange(ports).blocks() {
		for _, segment := range segments {
			m, err := openflow.NewMatch(append(segment,
				openflow.InPort(at.Port), openflow.EthType(etherType(agent)), openflow.IPProto(protoTCP),
				openflow.IPSrc(agent), openflow.TCPSrc(b.value).WithMask(uint64(b.mask)),
			)...)
			if err != nil {
				return nil, fmt.Errorf("guard of agent %v at %v: %w", agent, at, err)
			}
			rules = append(rules, network.Rule{
				Switch: at.Switch, Stage: network.StageSelect, Offset: rule.SelectAgent, Match: m,
				Actions: []openflow.Action{openflow.OutputController(wholePacket)},
			})
		}
	}
	return rules, nil
}

// keyStrayRules is the prefix of the stored sources of stray rules. The name "guards" stays
// because earlier controllers have stored it.
const keyStrayRules = Name + "/guards/"

// strayRules is the source from which an agent's stray rules are computed.
type strayRules struct {
	Agent netip.Addr        `json:"agent"`
	At    network.PortRef   `json:"at"`
	Ports control.PortRange `json:"ports"`
	// Flags reports whether the agent's switch can match TCP flags.
	Flags bool `json:"flags"`
}

func newStrayRules(c *core) *persistentRules[strayRules] {
	return newPersistentRules(c, "guard/", keyStrayRules, "switch takes no rules that keep an agent's stray packets from end hosts", func(g strayRules) ([]network.Rule, error) {
		return StrayRules(g.At, g.Agent, g.Ports, g.Flags)
	})
}

// wantedStrayRules returns the sources of the stray rules of all agents, by address, for
// their current or last known places.
func (s *Service) wantedStrayRules() map[string]strayRules {
	wanted, latest := map[string]strayRules{}, s.strayRules.latest()
	for _, a := range s.agents.List() {
		st := a.State()
		for _, addr := range st.Addrs {
			p, found := st.Places[addr]
			old, known := latest[addr.String()]
			if found && st.Status.SessionPorts.First > 0 {
				// The capabilities of a disconnected switch are not known, but stay as they were.
				flags := s.matchesTCPFlags(p.At.Switch) || old.At == p.At && old.Flags
				wanted[addr.String()] = strayRules{addr, p.At, st.Status.SessionPorts, flags}
			} else if known {
				wanted[addr.String()] = old
			}
		}
	}
	return wanted
}
