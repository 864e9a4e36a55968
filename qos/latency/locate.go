package latency

import (
	"context"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
)

// known is where an end was seen last.
func (s *Service) known(e End) (topology.Host, bool) {
	if e.IP.IsValid() {
		return s.net.HostByIP(e.IP)
	}
	return s.net.HostByMAC(e.MAC, e.VLAN)
}

// locate finds where an end stands, by asking for it if need be.
func (s *Service) locate(ctx context.Context, e End) (topology.Host, error) {
	if e.IP.IsValid() {
		return s.net.ResolveHost(ctx, e.IP)
	}
	if h, ok := s.known(e); ok {
		return h, nil
	}
	return topology.Host{}, network.ErrUnknownHost
}
