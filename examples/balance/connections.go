package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// idle is how long a connection is kept while its client sends nothing.
const idle = 5 * time.Minute

// connection is a TCP connection to a virtual address.
type connection struct {
	Front  string         `json:"front"`
	Client netip.AddrPort `json:"client"`
	MAC    openflow.MAC   `json:"mac"` // from which the client, or its router, sends
	Server string         `json:"server,omitempty"`
}

// identify returns the connection to which a packet belongs.
func (s *balance) identify(p *network.PacketIn) (id string, c connection, ok bool) {
	h := &p.Headers
	if !h.Has(packet.TCP) || h.IsFragment() || h.VLANTags > 0 {
		return "", c, false
	}
	for _, x := range s.Items() {
		if x.Value.Address == h.Dst && x.Value.Port == h.DstPort {
			return x.Name + " " + h.Source().String(), connection{Front: x.Name, Client: h.Source(), MAC: h.EthSrc}, true
		}
	}
	return "", c, false
}

// place returns the rules that forward a connection to its server, and the server's answers to the
// client as if they came from the virtual address. If the server no longer answers, place chooses
// another one, which resets the connection at once.
func (s *balance) place(_ context.Context, _ string, c connection) (connection, network.Program, error) {
	var p network.Program
	front, declared := s.Item(c.Front)
	if !declared {
		return c, p, kit.ErrFlowEnded
	}
	client, known := s.net.HostByMAC(c.MAC, 0)
	if !known {
		return c, p, fmt.Errorf("client %v: %w", c.Client, network.ErrUnknownHost)
	}
	address, at, err := s.choose(&c, front.Value)
	if err != nil {
		return c, p, err
	}
	path, ok := s.net.Topology().Path(client.At, at.At, network.MetricHops)
	if !ok {
		return c, p, fmt.Errorf("%v to %v: %w", client.At, at.At, network.ErrNoPath)
	}
	port := front.Value.Port
	virtual, _ := s.net.Virtual(front.Value.Address)
	there, thereErr := kit.Along{
		Hops: path.Hops, Stage: network.StageSelect, Offset: lead, Idle: idle, Treatments: s.treatments,
		Match: tcp(openflow.IPSrc(c.Client.Addr()), openflow.TCPSrc(c.Client.Port()), openflow.IPDst(front.Value.Address), openflow.TCPDst(port)),
		Set:   []openflow.OXM{openflow.EthDst(at.MAC), openflow.IPDst(address)},
	}.Rules()
	back, backErr := kit.Along{
		Hops: kit.Reversed(path.Hops), Stage: network.StageSelect, Offset: lead, Treatments: s.treatments,
		Match: tcp(openflow.IPSrc(address), openflow.TCPSrc(port), openflow.IPDst(c.Client.Addr()), openflow.TCPDst(c.Client.Port())),
		Set:   []openflow.OXM{openflow.EthSrc(virtual.MAC), openflow.EthDst(c.MAC), openflow.IPSrc(front.Value.Address)},
	}.Rules()
	p.Rules = append(there, back...)
	return c, p, errors.Join(thereErr, backErr)
}

// tcp returns a match for TCP segments.
func tcp(fields ...openflow.OXM) openflow.Match {
	ethType := uint16(packet.TypeIPv4)
	for _, f := range fields {
		if f.Field == openflow.FieldIPv6Dst {
			ethType = packet.TypeIPv6
		}
	}
	return openflow.MustMatch(append(fields, openflow.EthType(ethType), openflow.IPProto(packet.ProtoTCP))...)
}

// choose returns the address and the place of a connection's server. It keeps the present server as
// long as that answers, and otherwise chooses the one with the fewest connections.
func (s *balance) choose(c *connection, front Front) (netip.Addr, agents.Place, error) {
	s.mu.Lock()
	answers := s.answers
	s.mu.Unlock()
	if a := s.servers.Get(c.Server); a != nil && slices.Contains(front.Servers, c.Server) {
		state := a.State()
		address, _ := state.Addr(front.Address)
		at, found := state.Places[address]
		answering, reported := answers[c.Server]
		switch {
		case state.Liveness == agents.Unknown, state.Liveness == agents.Up && (!reported || !found):
			return address, at, fmt.Errorf("server %s: nothing is known of it yet", c.Server) // just after a start
		case state.Liveness == agents.Up && answering:
			return address, at, nil // also while it drains
		}
	}
	load, least, why := map[string]int{}, -1, error(nil)
	for _, other := range s.flows.Values() {
		load[other.Server]++
	}
	best, at := "", agents.Place{}
	for _, i := range rand.Perm(len(front.Servers)) { // servers with equally few connections in random order
		name := front.Servers[i]
		place, err := s.servers.Find(name, front.Address)
		if err == nil && !answers[name] {
			err = fmt.Errorf("server %s does not answer", name)
		}
		if err != nil {
			why = errors.Join(why, err)
		} else if least < 0 || load[name] < least {
			best, at, least = name, place, load[name]
		}
	}
	if best == "" {
		return netip.Addr{}, at, fmt.Errorf("no server of %s can be used: %w", front.Name, why)
	}
	c.Server = best
	state := s.servers.Get(best).State()
	address, _ := state.Addr(front.Address)
	return address, at, nil
}
