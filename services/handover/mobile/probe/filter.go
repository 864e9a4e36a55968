package probe

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/packetsocket"
)

// Answers returns a filter that passes answers to ARP requests and to unfragmented ICMP echo
// requests.
func Answers() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_ARP, SkipFalse: 2},
		bpf.LoadAbsolute{Off: 20, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 2, SkipTrue: 8, SkipFalse: 9}, // an ARP reply
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IP, SkipFalse: 8},
		bpf.LoadAbsolute{Off: 23, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.IPPROTO_ICMP, SkipFalse: 6},
		bpf.LoadAbsolute{Off: 20, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x3fff, SkipTrue: 4}, // more fragments, or not the first
		bpf.LoadMemShift{Off: 14},
		bpf.LoadIndirect{Off: 14, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipFalse: 1}, // an echo reply
		bpf.RetConstant{Val: packetsocket.WholeFrame},
		bpf.RetConstant{},
	}
}
