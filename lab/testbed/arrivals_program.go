package testbed

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// These are the offsets in a numbered datagram: IPv4 without options, UDP, and the number behind an
// RTP header.
const (
	atEtherType = 12
	atProtocol  = 23
	atPorts     = 34
	atPayload   = 42
	atNumber    = atPayload + rtpHeader
	rtpHeader   = 12
)

// These are the offsets of Arrived's fields in a value of the map.
const (
	valuePackets = 8 * iota
	valueFirst
	valueLast
	valueNumber
	valueLost
	valueDoubled
)

// countingProgram returns a program that counts the datagrams of the flows in the map, and drops
// them.
func countingProgram(flows *ebpf.Map) asm.Instructions {
	const drop, next = 2, -1 // are TCX_DROP and TCX_NEXT
	const number, value = asm.R7, asm.R8
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1), // LoadAbs expects the packet in this register.
		asm.LoadAbs(atEtherType, asm.Half),
		asm.JNE.Imm(asm.R0, unix.ETH_P_IP, "pass"),
		asm.LoadAbs(atProtocol, asm.Byte),
		asm.JNE.Imm(asm.R0, unix.IPPROTO_UDP, "pass"),
		asm.LoadAbs(atPorts, asm.Word),
		asm.StoreMem(asm.RFP, -4, asm.R0, asm.Word),
		asm.LoadAbs(atNumber, asm.Word),
		asm.Mov.Reg(number, asm.R0),

		asm.LoadMapPtr(asm.R1, flows.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.Mov.Reg(value, asm.R0),

		asm.FnKtimeGetNs.Call(),
		asm.StoreMem(value, valueLast, asm.R0, asm.DWord),
		asm.Mov.Imm(asm.R4, 1),
		asm.LoadMem(asm.R1, value, valuePackets, asm.DWord),
		asm.AddAtomic.Mem(value, asm.R4, asm.DWord, valuePackets),
		asm.JNE.Imm(asm.R1, 0, "compare"),
		asm.StoreMem(value, valueFirst, asm.R0, asm.DWord),
		asm.Ja.Label("newer"),

		asm.LoadMem(asm.R2, value, valueNumber, asm.DWord).WithSymbol("compare"),
		asm.JLE.Reg(number, asm.R2, "again"),
		asm.Mov.Reg(asm.R3, number),
		asm.Sub.Reg(asm.R3, asm.R2),
		asm.Sub.Imm(asm.R3, 1),
		asm.AddAtomic.Mem(value, asm.R3, asm.DWord, valueLost),
		asm.StoreMem(value, valueNumber, number, asm.DWord).WithSymbol("newer"),
		asm.Ja.Label("drop"),
		asm.AddAtomic.Mem(value, asm.R4, asm.DWord, valueDoubled).WithSymbol("again"),
		asm.Mov.Imm(asm.R0, drop).WithSymbol("drop"),
		asm.Return(),
		asm.Mov.Imm(asm.R0, next).WithSymbol("pass"),
		asm.Return(),
	}
}
