package sos

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

var (
	goes  = network.Treatment{Name: "up", DSCP: 11, Own: 10}
	comes = network.Treatment{Name: "down", DSCP: 15, Own: 46}
)

// treatedFigure returns the layout of the published figure, with a treatment in each direction.
func treatedFigure() Layout {
	l := figure()
	l.Up, l.Down, l.DSCP = goes, comes, goes.Own
	return l
}

// TestSentIsWhatTheEndHostWrites checks that the packets of an end host are described with
// everything that is known of them.
func TestSentIsWhatTheEndHostWrites(t *testing.T) {
	l := figure()
	l.DSCP, l.ServerSide.EndVLAN = 10, 7
	for r, want := range map[agentapi.Role]openflow.Match{
		agentapi.RoleClient: connection(portA, hostA, hostB, openflow.EthSrc(macA), openflow.EthDst(macB), openflow.NoVLAN(), openflow.IPDSCP(10)),
		agentapi.RoleServer: connection(portB, hostB, hostA, openflow.EthSrc(macB), openflow.EthDst(macA), openflow.VLANVID(7)),
	} {
		if got := l.sentMatch(r); got != want {
			t.Errorf("%s:\n got %v\nwant %v", r, got, want)
		}
	}
}

// TestSidesHaveQueues checks that each side's packets are put into the queue of their direction at
// every hop that has one, and that the other rules do not change.
func TestSidesHaveQueues(t *testing.T) {
	queues := map[network.Carried]uint32{
		{Treatment: "up", At: at(1, portX)}: 1, {Treatment: "down", At: at(1, portA)}: 2,
		{Treatment: "up", At: at(2, portB)}: 3, // down has no queue towards the server's agent
	}
	l := treatedFigure()
	client, server := bothSides(t, l, everything)
	plainClient, plainServer := bothSides(t, figure(), everything)
	ask := func(c network.Carried) uint32 { return queues[c] }
	with := func(rules []network.Rule, i int, queue uint32) []network.Rule {
		rules[i].Actions = append([]openflow.Action{openflow.SetQueue(queue)}, rules[i].Actions...)
		return rules
	}
	sameRules(t, "client", l.withQueues(agentapi.RoleClient, client, ask), with(with(plainClient, 0, 2), 1, 1))
	sameRules(t, "server", l.withQueues(agentapi.RoleServer, server, ask), with(plainServer, 0, 3))
	if want := (agentapi.Marks{Peer: 11, End: 46}); l.marks(agentapi.RoleClient) != want {
		t.Errorf("the client's agent marks %+v, want %+v", l.marks(agentapi.RoleClient), want)
	}
	if want := (agentapi.Marks{Peer: 15, End: 10}); l.marks(agentapi.RoleServer) != want {
		t.Errorf("the server's agent marks %+v, want %+v", l.marks(agentapi.RoleServer), want)
	}
	routed := l
	if routed.PeersRouted = true; routed.marks(agentapi.RoleClient).Peer != 0 {
		t.Error("packets bear the DSCP in a network that is not ours")
	}
	want := []network.Carried{{Treatment: "up", At: at(1, portX)}, {Treatment: "down", At: at(1, portA)}}
	if got := l.carriedPorts(agentapi.RoleClient); !slices.Equal(got, want) {
		t.Errorf("carried by %v, want %v", got, want)
	}
}

// TestSharesBetweenAgents checks that there is one more rule between the agents for each hop of a
// treatment, by its DSCP, in its direction, with precedence over packets without one. It must not
// match packets of other hosts.
func TestSharesBetweenAgents(t *testing.T) {
	path := []network.Hop{hop(1, portX, wan), hop(2, wan, portY)}
	plain, err := pairXY(path).Rules(everything)
	if err != nil {
		t.Fatal(err)
	}
	s := pairXY(path)
	s.addTreatments([]pairTreatment{{"up", 11, false}, {"down", 15, true}}, func(c network.Carried) uint32 {
		if c.Treatment == "down" && c.At == at(1, portX) {
			return 0 // no queue may be set there
		}
		return map[string]uint32{"up": 1, "down": 2}[c.Treatment]
	})
	rules, err := s.Rules(everything)
	if err != nil {
		t.Fatal(err)
	}
	sameRules(t, "pair", rules, append(slices.Clone(plain),
		steering(2, between(wan, s.X, s.Y, openflow.IPDSCP(11)), openflow.SetQueue(1), openflow.Output(portY)),
		steering(1, between(portX, s.X, s.Y, openflow.IPDSCP(11)), openflow.SetQueue(1), openflow.Output(wan)),
		steering(2, between(portY, s.Y, s.X, openflow.IPDSCP(15)), openflow.SetQueue(2), openflow.Output(wan)),
	))
	for i, r := range rules {
		if more := i >= len(plain); more != (r.Offset == rule.RouteAgentsTreated) {
			t.Errorf("rule %d has offset %d", i, r.Offset)
		}
	}
}

// TestSharesOfTaggedPaths checks that the treatment of a path with a tag is matched by the tag
// alone in its core.
func TestSharesOfTaggedPaths(t *testing.T) {
	s := pairXY([]network.Hop{hop(1, portX, 3), hop(7, 1, 2), hop(2, 3, portY)}, []network.Hop{hop(1, portX, 4), hop(8, 1, 2), hop(2, 4, portY)})
	s.addTreatments([]pairTreatment{{"up", 11, false}}, func(network.Carried) uint32 { return 1 })
	rules, err := s.Rules(everything)
	if err != nil {
		t.Fatal(err)
	}
	core := 0
	for _, r := range rules {
		if r.Offset != rule.RouteAgentsTreated {
			continue
		}
		if r.Switch == 7 || r.Switch == 8 {
			core++
		}
		if r.Actions[0] != openflow.SetQueue(1) || outputPort(&r) == at(1, portX) {
			t.Errorf("%+v", r)
		}
	}
	if core != 2 {
		t.Errorf("%d rules at the core's two switches", core)
	}
}

// promiser makes the promises that the test sets, for all packets of the client or the server.
type promiser struct {
	mu     sync.Mutex
	up     network.Treatment
	queue  uint32
	carry  []network.Carried
	loaded chan struct{}
}

func (p *promiser) Loaded() <-chan struct{} { return p.loaded }

func (p *promiser) Treatment(m openflow.Match) (network.Treatment, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	from, _ := m.Get(openflow.FieldIPv4Src)
	return p.up, p.up.Name != "" && from.Addr() == hostA.Addr()
}

func (p *promiser) Queue(network.Carried) uint32 { p.mu.Lock(); defer p.mu.Unlock(); return p.queue }

func (p *promiser) Carry(all []network.Carried) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.carry = all
}

func (p *promiser) set(t network.Treatment, queue uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.up, p.queue = t, queue
}

func (p *promiser) carries(want ...network.Carried) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.carry) == len(want) && !slices.ContainsFunc(want, func(c network.Carried) bool { return !slices.Contains(p.carry, c) })
}

// putMarks handles the request that changes an agent's marks.
func (a *fakeAgent) putMarks(w http.ResponseWriter, r *http.Request) {
	id, _ := agentapi.ParseSessionID(r.PathValue("id"))
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[id]
	s.Marks = agentapi.Marks{}
	_ = json.NewDecoder(r.Body).Decode(&s.Marks)
	a.sessions[id] = s
	w.WriteHeader(http.StatusNoContent)
}

// marked reports whether all sessions of an agent have these marks.
func (a *fakeAgent) marked(m agentapi.Marks) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.sessions {
		if s.Marks != m {
			return false
		}
	}
	return len(a.sessions) > 0
}

// Rules returns the rules of a key.
func (n *fakeNet) Rules(key string) (out []network.InstalledRule) {
	for _, r := range n.snapshot()[key] {
		out = append(out, network.InstalledRule{Rule: r})
	}
	return out
}

// queuing counts the rules that set a queue.
func (n *fakeNet) queuing(queue uint32) (count int) {
	for _, rules := range n.snapshot() {
		for _, r := range rules {
			if len(r.Actions) > 0 && r.Actions[0] == openflow.SetQueue(queue) {
				count++
			}
		}
	}
	return count
}

// TestSessionsFollowTreatments checks that a live session gets a treatment when that is declared,
// and loses it when it is withdrawn, and that the promising service learns the ports of its
// packets. Later sessions have the treatment from the beginning.
func TestSessionsFollowTreatments(t *testing.T) {
	b := newBench(t)
	b.stop()
	p := &promiser{loaded: make(chan struct{})}
	close(p.loaded)
	var treatments network.Treatments
	treatments.Promise(p)
	b.treatments = &treatments
	b.start()
	b.agentsUp()
	_, held := b.syn(hostA)
	if got := b.fate(held); got != "released" {
		t.Fatalf("the first packet is %s", got)
	}
	all := []network.Carried{
		{Treatment: "up", At: at(1, portX)},
		{Treatment: "up", At: at(2, portB)},
		{Treatment: "up", At: at(1, wan), Between: true},
		{Treatment: "up", At: at(2, portY), Between: true},
	}
	p.set(goes, 0)
	treatments.Changed()
	b.eventually("the ports are told", func() bool { return p.carries(all...) })
	if !b.x.marked(agentapi.Marks{Peer: 11}) || !b.y.marked(agentapi.Marks{}) {
		t.Error("the agents do not mark what they send")
	}
	p.set(goes, 5)
	treatments.Changed()
	// There are two rules at the sides, and between the agents one for each switch.
	b.eventually("packets are put into queues", func() bool { return b.net.queuing(5) == 4 })
	if list := b.service.records("live"); len(list) != 1 || list[0].ClassUp != "up" || list[0].ClassDown != "" {
		t.Errorf("the record says %+v", list)
	}
	_, held = b.syn(netip.AddrPortFrom(hostA.Addr(), 40002))
	if got := b.fate(held); got != "released" {
		t.Fatalf("the second connection's first packet is %s", got)
	}
	if !b.x.marked(agentapi.Marks{Peer: 11}) || b.net.queuing(5) != 6 {
		t.Errorf("the second session does not have it at once: %d rules with the queue, want 6", b.net.queuing(5))
	}
	p.set(network.Treatment{}, 0)
	treatments.Changed()
	b.eventually("nothing of it is left", func() bool { return b.net.queuing(5) == 0 && p.carries() && b.x.marked(agentapi.Marks{}) })
}
