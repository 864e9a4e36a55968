package handover

import (
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// A device's questions in its own network are sent behind the border ports, from its home MAC
// address, and the answer is relayed to where the device is.
func TestAskBeyond(t *testing.T) {
	r := newRig(t, nil)
	ip := r.attach(edge3, mac2)
	r.idle()
	host, hostIP := mac("06:00:00:00:00:60"), netip.MustParseAddr("10.8.200.60")
	next := func(op uint16) (at network.PortRef, h packet.Headers) {
		t.Helper()
		timeout := time.NewTimer(answerTime)
		defer timeout.Stop()
		for {
			select {
			case f := <-r.w.sent:
				if h.Parse(f.data) == nil && h.ARPOp == op && h.EthSrc != serverMAC {
					return f.at, h
				}
			case <-timeout.C:
				t.Fatalf("no ARP packet of operation %d", op)
			}
		}
	}
	if v := r.in(edge3, packet.AppendARPRequest(nil, mac2, ip, hostIP, 0)); v != network.Stop {
		t.Errorf("the question: verdict %v", v)
	}
	if at, h := next(packet.ARPRequest); at != uplink || h.EthSrc != mac1 || h.ARPSHA != mac1 || h.Src != ip || h.Dst != hostIP {
		t.Errorf("asked at %v: %+v", at, h)
	}
	reply := arpFrom(host, mac1, packet.ARPMessage{Op: packet.ARPReply, SenderMAC: host, Sender: hostIP, TargetMAC: mac1, Target: ip})
	if v := r.in(uplink, reply); v != network.Stop {
		t.Errorf("the answer: verdict %v", v)
	}
	if at, h := next(packet.ARPReply); at != edge3 || h.EthDst != mac2 || h.ARPSHA != host || h.Src != hostIP || h.Dst != ip {
		t.Errorf("answered at %v: %+v", at, h)
	}
	if v := r.in(edge4, reply); v != network.Continue {
		t.Errorf("an answer at an edge port: verdict %v", v)
	}
}

// A host that invents other hosts causes only a few reports, and the invented hosts are forgotten
// in time.
func TestStraysAreBounded(t *testing.T) {
	s, now, told := newUnreachableHosts(), time.Now(), 0
	for i := range 1000 {
		if s.add(edge3, addr4(0x0a080000+uint32(i)), openflow.MAC{6, 0, 0, 0, byte(i >> 8), byte(i)}, now) {
			told++
		}
	}
	if told != maxUnreachable || len(s.errors(now)) != maxUnreachable {
		t.Errorf("told %d times, %d are remembered, want %d", told, len(s.errors(now)), maxUnreachable)
	}
	later := now.Add(unreachableAge + time.Second)
	if got := s.errors(later); len(got) != 0 {
		t.Errorf("after a while: %q", got)
	}
	if !s.add(edge3, addr4(0x0a080001), mac1, later) || !s.add(edge4, addr4(0x0a080001), mac1, later) {
		t.Error("what comes again after a while, or elsewhere, is not told")
	}
}
