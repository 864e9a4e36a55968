package classifier

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// typeOffset, headerAt and checksumAt are the offsets of the ethertype and the IP header in a
// frame, and of the checksum in the IPv4 header. tagLength is the length of a VLAN tag. All are in
// bytes (RFC 791, RFC 8200).
const (
	typeOffset = 12
	tagLength  = 4
	headerAt   = 14
	checksumAt = 10
)

// A probe of a link is an LLDP frame to the address that bridges do not forward. Switches send all
// such frames to the controller, so all that leave a switch are the controller's own.
const (
	lldpType  = 0x88cc
	lldpHigh  = 0x0180c200 // the destination's first four bytes
	lldpLow   = 0x000e     // the destination's last two bytes
	lldpLowAt = 4
)

// family describes an IP version for the program.
type family struct {
	name      string
	etherType int32
	shift     int32 // position of the DSCP in the header's first 16 bits
	checksum  bool
}

var families = []family{{"ipv4", 0x0800, 2, true}, {"ipv6", 0x86dd, 6, false}}

// These are offsets of the program's variables on its stack.
const (
	wordSlot  = -8
	classSlot = -16
)

// htbMajor is the major number of the classes that Open vSwitch creates.
const htbMajor = 1

// load loads the program of a table into the kernel. The program returns the class, with the major
// number in the upper half. For packets that are neither marked nor probes of links it returns 0,
// and they go to the default class.
func (t Table) load() (*ebpf.Program, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "sluice_classify", Type: ebpf.SchedCLS, License: "GPL", Instructions: t.instructions()})
	if err != nil {
		return nil, fmt.Errorf("load the classifier: %w", err)
	}
	return p, nil
}

// instructions returns the program of a table that is not empty. R6 holds the packet, R7 the offset
// of its IP header, R8 the header's first 16 bits, and R9 the DSCP.
func (t Table) instructions() asm.Instructions {
	out := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.Mov.Imm(asm.R7, headerAt),
		asm.LoadAbs(typeOffset, asm.Half),
		asm.JNE.Imm(asm.R0, 0x8100, "type"),
		asm.Mov.Imm(asm.R7, headerAt+tagLength),
		asm.LoadAbs(typeOffset+tagLength, asm.Half),
	}
	var tests asm.Instructions
	marked := families
	if len(t.Marks) == 0 {
		marked = nil
	}
	for _, f := range marked {
		tests = append(tests, asm.JEq.Imm(asm.R0, f.etherType, f.name))
	}
	if t.Probes != 0 {
		tests = append(tests, asm.JEq.Imm(asm.R0, lldpType, "lldp"))
	}
	tests[0] = tests[0].WithSymbol("type")
	out = append(append(out, tests...), asm.Mov.Imm(asm.R0, 0).WithSymbol("none"), asm.Return())
	if t.Probes != 0 {
		out = append(out, t.probes()...)
	}
	for _, f := range marked {
		out = append(out, t.lookup(f)...)
		out = append(out, restore(f)...)
	}
	return out
}

// probes returns the instructions that recognise probes of links among LLDP frames.
func (t Table) probes() asm.Instructions {
	return asm.Instructions{
		asm.LoadAbs(0, asm.Word).WithSymbol("lldp"),
		asm.JNE.Imm(asm.R0, lldpHigh, "none"),
		asm.LoadAbs(lldpLowAt, asm.Half),
		asm.JNE.Imm(asm.R0, lldpLow, "none"),
		asm.Mov.Imm(asm.R0, class(t.Probes)),
		asm.Return(),
	}
}

// class returns the class of a queue, with the major number in the upper half.
func class(queue uint32) int32 { return htbMajor<<16 | int32(classOf(queue)) }

// lookup returns the instructions that look up the packet's DSCP in the table.
func (t Table) lookup(f family) asm.Instructions {
	out := asm.Instructions{
		asm.LoadInd(asm.R0, asm.R7, 0, asm.Half).WithSymbol(f.name),
		asm.Mov.Reg(asm.R8, asm.R0),
		asm.Mov.Reg(asm.R9, asm.R0),
		asm.RSh.Imm(asm.R9, f.shift),
		asm.And.Imm(asm.R9, 0x3f),
	}
	for i, e := range t.Marks {
		next := fmt.Sprintf("%s-%d", f.name, i+1)
		test := asm.JNE.Imm(asm.R9, int32(e.Mark), next)
		if i > 0 {
			test = test.WithSymbol(fmt.Sprintf("%s-%d", f.name, i))
		}
		out = append(out, test,
			asm.Mov.Imm(asm.R9, int32(e.Own)<<f.shift),
			asm.StoreImm(asm.RFP, classSlot, int64(class(e.Queue)), asm.Word),
			asm.Ja.Label(f.name+"-restore"))
	}
	end := asm.Mov.Imm(asm.R0, 0)
	if len(t.Marks) > 0 {
		end = end.WithSymbol(fmt.Sprintf("%s-%d", f.name, len(t.Marks)))
	}
	return append(out, end, asm.Return())
}

// restore returns the instructions that write the DSCP in R9 into the packet, correct the
// checksum, and return the class.
func restore(f family) asm.Instructions {
	out := asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.R8).WithSymbol(f.name + "-restore"),
		asm.And.Imm(asm.R1, 0xffff&^(0x3f<<f.shift)),
		asm.Or.Reg(asm.R9, asm.R1),
		asm.HostTo(asm.BE, asm.R8, asm.Half),
		asm.HostTo(asm.BE, asm.R9, asm.Half),
	}
	if f.checksum {
		out = append(out,
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.Mov.Reg(asm.R2, asm.R7),
			asm.Add.Imm(asm.R2, checksumAt),
			asm.Mov.Reg(asm.R3, asm.R8),
			asm.Mov.Reg(asm.R4, asm.R9),
			asm.Mov.Imm(asm.R5, 2),
			asm.FnL3CsumReplace.Call())
	}
	return append(out,
		asm.StoreMem(asm.RFP, wordSlot, asm.R9, asm.Half),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R2, asm.R7),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, wordSlot),
		asm.Mov.Imm(asm.R4, 2),
		asm.Mov.Imm(asm.R5, 0),
		asm.FnSkbStoreBytes.Call(),
		asm.LoadMem(asm.R0, asm.RFP, classSlot, asm.Word),
		asm.Return())
}
