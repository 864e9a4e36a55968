package plugin

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/handover/registry"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

const (
	// strayAge is how long a host is remembered that says nothing more.
	strayAge = 10 * time.Minute
	// maxStrays is how many hosts are told of at one port.
	maxStrays = 8
)

// strays are hosts at edge ports that have an address in a network of devices
// without a lease. What devices send goes up to a border port, so it never gets there.
type strays struct {
	mu    sync.Mutex
	ports map[network.PortRef][]stray
}

type stray struct {
	ip   netip.Addr
	mac  openflow.MAC
	last time.Time
}

func newStrays() *strays { return &strays{ports: map[network.PortRef][]stray{}} }

// saw takes note of a host, and says whether it is one to tell of.
func (s *strays) saw(at network.PortRef, ip netip.Addr, mac openflow.MAC, now time.Time) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	here := slices.DeleteFunc(s.ports[at], func(x stray) bool { return now.Sub(x.last) > strayAge })
	i := slices.IndexFunc(here, func(x stray) bool { return x.ip == ip })
	switch {
	case i >= 0:
		here[i].last = now
	case len(here) < maxStrays:
		here, first = append(here, stray{ip, mac, now}), true
	}
	s.ports[at] = here
	return first
}

// errors tells of the hosts that were there lately.
func (s *strays) errors(now time.Time) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for at, here := range s.ports {
		for _, x := range here {
			if now.Sub(x.last) <= strayAge {
				out = append(out, "host "+x.ip.String()+" ("+x.mac.String()+") at port "+at.String()+": "+cannotReach)
			}
		}
	}
	return out
}

// cannotReach is why devices do not reach a host, and what would help.
const cannotReach = "devices cannot reach it: it has an address in their network, no lease, and stands behind no border port. " +
	"Register it as a device with this address and let it ask by DHCP, or connect it behind a border port, or give it an address outside of the network"

// stray takes note of a host that says that it has an address in a network of
// devices.
func (s *guards) stray(v *view, at network.PortRef, h *packet.Headers, arrived time.Time) {
	if _, within := v.homeOf(h.Src); !within {
		return
	}
	if _, device := s.registry.DeviceByMAC(h.EthSrc); device {
		return
	}
	if s.strays.saw(at, h.Src, h.EthSrc, arrived) {
		s.log.Warn("a host without a lease has an address in a network of devices, which cannot reach it", "ip", h.Src, "mac", h.EthSrc, "port", at)
		s.publish("host.unreachable", map[string]any{"ip": h.Src, "mac": h.EthSrc, "port": at.String(), "reason": cannotReach})
	}
}

// askBeyond asks, for a device, where its packets go: behind the border ports. A host of
// its network that is at an edge port is not to answer, since they do not get there.
func (s *guards) askBeyond(v *view, asker registry.Device, h *packet.Headers) bool {
	home, within := v.homeOf(h.Dst)
	d, ok := s.leased(h.Src)
	if !within || !ok || d.ID != asker.ID {
		return false
	}
	frame := packet.AppendARPRequest(nil, d.HomeMAC(), h.Src, h.Dst, 0)
	for at, border := range v.borders {
		if border.Peer == home {
			_ = s.net.Send(at, frame) // the device asks again
		}
	}
	return true
}

// answerBeyond passes the answer from behind a border port on to the device that has asked.
func (s *guards) answerBeyond(h *packet.Headers) bool {
	d, ok := s.leased(h.Dst)
	if !ok || h.EthDst != d.HomeMAC() {
		return false
	}
	l, _ := s.registry.Lease(d.ID)
	if l.Attachment == nil || l.Attachment.Peer != "" {
		return false
	}
	at := *l.Attachment
	_ = s.net.Send(at.At, packet.AppendARP(nil, packet.Frame{Dst: at.MAC, Src: h.ARPSHA}, // the device asks again
		packet.ARPMessage{Op: packet.ARPReply, SenderMAC: h.ARPSHA, Sender: h.Src, TargetMAC: at.MAC, Target: h.Dst}))
	return true
}
