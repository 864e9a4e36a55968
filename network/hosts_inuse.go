package network

import (
	"context"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// AddressInUse reports whether a host answers for an address, and its MAC address. Unlike
// ResolveHost it does not rely on what is known: it probes every edge port, with ARP or neighbour
// discovery, for up to a second and a half.
func (n *Network) AddressInUse(ctx context.Context, a netip.Addr) (mac openflow.MAC, used bool) {
	a = a.Unmap()
	answer := n.doctor.probes.awaitAnswer(a)
	defer n.doctor.probes.cancelAnswer(a, answer)
	again := time.NewTicker(resolveInterval)
	defer again.Stop()
	for range maxQuestions {
		n.hostProber.probeAllPorts(a)
		select {
		case <-answer.done:
			return answer.mac, true
		case <-again.C:
		case <-ctx.Done():
			return mac, false
		}
	}
	return mac, false
}
