// Package candidates changes the addresses that the gateways' answers to WebRTC offers name. A gateway
// behind NAT cannot know the addresses at which others reach it, so its configuration has them.
package candidates

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/pion/sdp/v3"
)

// Replace returns an answer, which is the SDP description of an ICE "lite" agent, with the given addresses
// in the place of those that it names. Without addresses it returns the answer unchanged.
func Replace(answer string, addresses []netip.AddrPort) (string, error) {
	if len(addresses) == 0 {
		return answer, nil
	}
	var s sdp.SessionDescription
	if err := s.UnmarshalString(answer); err != nil {
		return "", fmt.Errorf("answer: %w", err)
	}
	for _, m := range s.MediaDescriptions {
		first := slices.IndexFunc(m.Attributes, isCandidate)
		if first < 0 {
			continue // the section is bundled with one that has candidates, or refused
		}
		m.Attributes = slices.DeleteFunc(m.Attributes, isCandidate)
		for i, a := range addresses {
			m.Attributes = slices.Insert(m.Attributes, first+i, candidate(a, i))
		}
	}
	b, err := s.Marshal()
	return string(b), err
}

func isCandidate(a sdp.Attribute) bool { return a.Key == "candidate" }

// candidate returns the host candidate with an index (RFC 8839, 5.1). Earlier candidates have a higher
// priority (RFC 8445, 5.1.2.1).
func candidate(a netip.AddrPort, index int) sdp.Attribute {
	const hostPreference, component = 126, 1
	priority := uint32(hostPreference)<<24 | uint32(65535-index)<<8 | (256 - component)
	return sdp.NewAttribute("candidate", fmt.Sprintf("%d %d udp %d %s %d typ host", index+1, component, priority, a.Addr(), a.Port()))
}
