package plugin

import (
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/service/control"
	"github.com/sluice-net/sluice/sos/agentapi"
)

// Guards returns the rules that send to the controller what an agent sends from
// its session ports: sessions have rules above them. So nothing that an agent
// sends outside a session reaches an end host, and no switch caches a decision to
// forward it, which the next session's packets might be given.
//
// Where a switch can match TCP flags, there is one rule for segments with SYN and
// one for those without. What Open vSwitch has cached for a session does not look
// at flags; so when the session's rules go, it is thrown away, rather than turned
// into a decision of the guard's and kept for ten seconds more.
func Guards(at network.PortRef, agent netip.Addr, ports control.PortRange, flags bool) ([]network.Rule, error) {
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

// keyGuards is where guards are remembered.
const keyGuards = Name + "/guards/"

// guard is what an agent's guard rules follow from.
type guard struct {
	Agent netip.Addr        `json:"agent"`
	At    network.PortRef   `json:"at"`
	Ports control.PortRange `json:"ports"`
	// Flags says that the agent's switch can match TCP flags.
	Flags bool `json:"flags"`
}

func newGuards(c *core) *standing[guard] {
	return newStanding(c, "guard/", keyGuards, "switch takes no rules that keep an agent's stray packets from end hosts", func(g guard) ([]network.Rule, error) {
		return Guards(g.At, g.Agent, g.Ports, g.Flags)
	})
}

// wantedGuards are those of all agents, by their addresses, as they stand now or last stood.
func (s *Service) wantedGuards() map[string]guard {
	wanted, latest := map[string]guard{}, s.guards.latest()
	for _, a := range s.agents.List() {
		st := a.State()
		for _, addr := range st.Addrs {
			p, found := st.Places[addr]
			old, known := latest[addr.String()]
			if found && st.Status.SessionPorts.First > 0 {
				// Of a switch that is away nothing is known; it will not have unlearnt.
				flags := s.seesTCPFlags(p.At.Switch) || old.At == p.At && old.Flags
				wanted[addr.String()] = guard{addr, p.At, st.Status.SessionPorts, flags}
			} else if known {
				wanted[addr.String()] = old
			}
		}
	}
	return wanted
}

// agentFlow is how a side's end host is addressed by the agent itself, before any
// switch rewrites it.
func (l *Layout) agentFlow(r agentapi.Role) flow {
	side := l.side(r)
	end, _ := l.ends(r)
	return flow{client: netip.AddrPortFrom(side.Agent, side.AgentPort), server: end}
}
