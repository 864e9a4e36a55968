package subflows

import (
	"context"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/services/qos/match"
)

// Large connections of plain TCP have no further subflows. For hosts that cannot be
// changed, samples of packets reveal such connections, and each connection as a whole gets
// a path of its own, as in Hedera (Al-Fares et al., NSDI 2010).

const (
	// largeShare is the rate, in percent of the capacity of its host's link, from which a
	// connection counts as large.
	largeShare = 10
	// maxLarge bounds the number of connections, the largest ones, that are considered after each
	// reading.
	maxLarge = 64
)

// placeLarge starts the placement of large connections of plain TCP.
func (s *Service) placeLarge(context.Context) {
	if s.Sampled == nil {
		return
	}
	for _, t := range s.Sampled.Talkers(maxLarge, s.placeable) {
		if f := s.plainFlow(t.Conversation); f != nil && s.isLarge(t) {
			s.beginPlain(f)
		}
	}
}

// placeable reports whether a conversation may get a path. Conversations that have a path already,
// or cannot get one, do not count among the maxLarge largest ones.
func (s *Service) placeable(c stats.Conversation) bool {
	if c.Proto != packet.ProtoTCP || !s.Network.IsEdge(c.At) {
		return false
	}
	f := s.plainFlow(c)
	return f != nil && s.flows.find(f.Header) == nil
}

// isLarge reports whether a connection is certainly large. It allows for the error of estimates
// from few samples.
func (s *Service) isLarge(t stats.Talker) bool {
	capacity := float64(s.Book.Use(t.At).Capacity)
	return capacity > 0 && t.Bits*(1-t.Error) >= capacity*largeShare/100
}

// plainFlow returns the subflow that stands for a connection of plain TCP between two hosts; nil if
// the hosts' places are not known, or another service decides their paths.
func (s *Service) plainFlow(c stats.Conversation) *subflow {
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

// host returns the host with an address, and reports whether it is known and not mobile.
func (s *Service) host(a netip.Addr) (network.Host, bool) {
	if _, moves := s.Network.Anchored(a); moves {
		return network.Host{}, false
	}
	return s.Network.HostByIP(a)
}

// beginPlain starts the placement of a connection of plain TCP, unless it is placed already or was
// tried recently.
func (s *Service) beginPlain(f *subflow) {
	s.flows.mu.Lock()
	defer s.flows.mu.Unlock()
	if s.flows.byHeader[f.Header] != nil || s.flows.byHeader[f.Header.Reverse()] != nil || s.flows.refusal(f.From) != "" {
		return
	}
	f.id = identify(f.Header)
	f.changing.Lock()
	s.flows.addPlacing(f)
	if !s.tasks.Start(func(context.Context) { s.placer.place(f) }) {
		f.changing.Unlock() // the controller is stopping
	}
}
