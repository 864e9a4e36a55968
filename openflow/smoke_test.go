package openflow

import (
	"net/netip"
	"testing"
)

func TestNewMatchRefusesMissingPrerequisite(t *testing.T) {
	if _, err := NewMatch(TCPDst(80)); err == nil {
		t.Fatal("tcp_dst without ip_proto was accepted")
	}
	m := MustMatch(TCPDst(80), IPProto(6), IPDst(netip.MustParseAddr("10.0.0.1")), EthType(0x800), InPort(1))
	if got, want := m.String(), "in_port=1,eth_type=0x0800,ip_proto=6,ip_dst=10.0.0.1,tcp_dst=80"; got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}
