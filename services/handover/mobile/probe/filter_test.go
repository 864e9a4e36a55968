package probe

import (
	"net/netip"
	"testing"

	"golang.org/x/net/bpf"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// icmp returns a frame with ICMP of a type, behind an IP option.
func icmp(kind byte, fragment uint16) []byte {
	return append(append([]byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0},
		0x46, 0, 0, 32, 0, 0, byte(fragment>>8), byte(fragment), 64, 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 1),
		kind, 0, 0, 0, 0, 0, 0, 0)
}

func TestAnswers(t *testing.T) {
	vm, err := bpf.NewVM(Answers())
	if err != nil {
		t.Fatal(err)
	}
	mac, gateway := openflow.MAC{2, 0, 0, 0, 0, 1}, netip.MustParseAddr("10.0.0.1")
	request := packet.AppendARPRequest(nil, mac, netip.IPv4Unspecified(), gateway, 0)
	var h packet.Headers
	if err := h.Parse(request); err != nil {
		t.Fatal(err)
	}
	udp := icmp(0, 0)
	udp[23] = 17
	for _, c := range []struct {
		what  string
		frame []byte
		want  bool
	}{
		{"ARP reply", packet.AppendARPReply(nil, &h, openflow.MAC{2, 0, 0, 0, 0, 9}), true},
		{"ARP request", request, false},
		{"echo reply", icmp(0, 0), true},
		{"echo reply, not to be fragmented", icmp(0, 0x4000), true},
		{"echo request", icmp(8, 0), false},
		{"first fragment", icmp(0, 0x2000), false},
		{"later fragment", icmp(0, 1), false},
		{"UDP", udp, false},
	} {
		n, err := vm.Run(c.frame)
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if passes := n >= len(c.frame); passes != c.want {
			t.Errorf("%s: %d bytes pass, want all: %v", c.what, n, c.want)
		}
	}
}
