package packetsocket

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// WholeFrame is the value that a filter returns to accept a frame of any size.
const WholeFrame = 1 << 18

// UDPTo returns a filter that accepts unfragmented IPv4 UDP packets to a port.
func UDPTo(port uint16) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IP, SkipFalse: 8},
		bpf.LoadAbsolute{Off: 23, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_UDP, SkipFalse: 6},
		bpf.LoadAbsolute{Off: 20, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x3fff, SkipTrue: 4}, // more fragments, or not the first
		bpf.LoadMemShift{Off: 14},
		bpf.LoadIndirect{Off: 16, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(port), SkipFalse: 1},
		bpf.RetConstant{Val: WholeFrame},
		bpf.RetConstant{},
	}
}
