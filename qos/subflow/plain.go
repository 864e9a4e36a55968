package subflow

import (
	"context"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/qos/match"
)

// Large connections of plain TCP have no further subflows. For hosts that one cannot touch they
// are found by samples of packets, and each as a whole gets a path of its own, as Hedera has it
// (Al-Fares et al., NSDI 2010).

const (
	// largeShare is the part of the link of its host, in percent, from which on a connection
	// is large.
	largeShare = 10
	// largeAtOnce bounds those that are looked at after a reading: the largest.
	largeAtOnce = 64
)

// Sampled tells what samples of packets let expect of conversations; a *network.Traffic.
type Sampled interface {
	Talkers(limit int, of func(stats.Conversation) bool) []stats.Talker
}

// placeLarge gives paths to large connections of plain TCP.
func (s *Service) placeLarge(context.Context) {
	if s.Sampled == nil {
		return
	}
	for _, t := range s.Sampled.Talkers(largeAtOnce, s.placeable) {
		if f := s.plain(t.Conversation); f != nil && s.large(t) {
			s.beginPlain(f)
		}
	}
}

// placeable says whether a conversation may get a path: those that have one, or can have none, take no
// places among the largest.
func (s *Service) placeable(c stats.Conversation) bool {
	if c.Proto != packet.ProtoTCP || !s.Network.IsEdge(c.At) {
		return false
	}
	f := s.plain(c)
	return f != nil && s.flows.find(f.Header) == nil
}

// large says whether a connection is, beyond what chance may have made of few samples.
func (s *Service) large(t stats.Talker) bool {
	capacity := float64(s.Book.Use(t.At).Capacity)
	return capacity > 0 && t.Bits*(1-t.Error) >= capacity*largeShare/100
}

// plain is a connection of plain TCP between two hosts, nil if it is not known where they are, or
// it is for another service to say where it goes.
func (s *Service) plain(c stats.Conversation) *subflow {
	from, known := s.host(c.Src.Addr())
	to, knownTo := s.host(c.Dst.Addr())
	if !known || !knownTo || from.At != c.At || to.At == c.At || to.At.IsZero() || from.VLAN != to.VLAN {
		return nil
	}
	kind := uint16(packet.TypeIPv4)
	if c.Src.Addr().Is6() {
		kind = packet.TypeIPv6
	}
	h := match.Header{
		EthType: kind, VLAN: from.VLAN, EthSrc: from.MAC, EthDst: to.MAC, Src: c.Src.Addr(), Dst: c.Dst.Addr(), Proto: packet.ProtoTCP, SrcPort: c.Src.Port(), DstPort: c.Dst.Port(),
	}
	return &subflow{stored: stored{Header: h, From: from.At, To: to.At, Since: time.Now(), Plain: true}}
}

// host is a host that stays where it is.
func (s *Service) host(a netip.Addr) (network.Host, bool) {
	if _, moves := s.Network.Anchored(a); moves {
		return network.Host{}, false
	}
	return s.Network.HostByIP(a)
}

// beginPlain has a connection placed, unless it is already, or was tried not long ago.
func (s *Service) beginPlain(f *subflow) {
	s.flows.mu.Lock()
	defer s.flows.mu.Unlock()
	if s.flows.byHeader[f.Header] != nil || s.flows.byHeader[f.Header.Reverse()] != nil || s.flows.full(f.From) != "" {
		return
	}
	f.id = identify(f.Header)
	f.changing.Lock()
	s.flows.addPlacing(f)
	if !s.tasks.Start(func(context.Context) { s.placer.place(f) }) {
		f.changing.Unlock() // the controller ends
	}
}
