package raw

import "golang.org/x/sys/unix"

// Filter is a classic BPF program that selects the frames that a socket receives.
type Filter []unix.SockFilter

// Opcodes of classic BPF that the filters use.
const (
	loadHalf   = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS
	loadHalfX  = unix.BPF_LD | unix.BPF_H | unix.BPF_IND
	loadByteX  = unix.BPF_LD | unix.BPF_B | unix.BPF_IND
	loadByte   = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
	loadIHL    = unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH
	jumpEqual  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	jumpSet    = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	returnThis = unix.BPF_RET | unix.BPF_K
)

// wholeFrame is how much of a frame a filter passes.
const wholeFrame = 0xffff

// UDPTo returns a filter that passes unfragmented IPv4 UDP to a port.
func UDPTo(port uint16) Filter {
	return Filter{
		{Code: loadHalf, K: 12},
		{Code: jumpEqual, K: unix.ETH_P_IP, Jf: 8},
		{Code: loadByte, K: 23},
		{Code: jumpEqual, K: unix.IPPROTO_UDP, Jf: 6},
		{Code: loadHalf, K: 20},
		{Code: jumpSet, K: 0x3fff, Jt: 4}, // more fragments, or not the first
		{Code: loadIHL, K: 14},
		{Code: loadHalfX, K: 16},
		{Code: jumpEqual, K: uint32(port), Jf: 1},
		{Code: returnThis, K: wholeFrame},
		{Code: returnThis, K: 0},
	}
}

// ProbeAnswers returns a filter that passes answers to ARP requests and to unfragmented ICMP echo
// requests.
func ProbeAnswers() Filter {
	return Filter{
		{Code: loadHalf, K: 12},
		{Code: jumpEqual, K: unix.ETH_P_ARP, Jf: 2},
		{Code: loadHalf, K: 20},
		{Code: jumpEqual, K: 2, Jt: 8, Jf: 9},
		{Code: jumpEqual, K: unix.ETH_P_IP, Jf: 8},
		{Code: loadByte, K: 23},
		{Code: jumpEqual, K: unix.IPPROTO_ICMP, Jf: 6},
		{Code: loadHalf, K: 20},
		{Code: jumpSet, K: 0x3fff, Jt: 4}, // more fragments, or not the first
		{Code: loadIHL, K: 14},
		{Code: loadByteX, K: 14},
		{Code: jumpEqual, K: 0, Jf: 1}, // an echo reply
		{Code: returnThis, K: wholeFrame},
		{Code: returnThis, K: 0},
	}
}
