package classifier

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Offsets in a frame, and the DSCP within the first 16 bits of an IP header (RFC 791,
// RFC 8200).
const (
	typeOffset = 12
	tagLength  = 4
	headerAt   = 14
	checksumAt = 10
)

// family is an IP version as the program sees it.
type family struct {
	name      string
	etherType int32
	shift     int32 // of the DSCP in the first 16 bits
	checksum  bool
}

var families = []family{{"ipv4", 0x0800, 2, true}, {"ipv6", 0x86dd, 6, false}}

// Stack slots of the program.
const (
	wordSlot  = -8
	classSlot = -16
)

// htbMajor is the major number of the classes that Open vSwitch makes.
const htbMajor = 1

// load brings the program of a table into the kernel. It returns the class as a
// number with the major one in its upper half, or 0 for packets without a mark, which
// then go to the default class.
func (t Table) load() (*ebpf.Program, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "sluice_classify", Type: ebpf.SchedCLS, License: "GPL", Instructions: t.instructions()})
	if err != nil {
		return nil, fmt.Errorf("load the classifier: %w", err)
	}
	return p, nil
}

// instructions: R6 is the packet, R7 the offset of its IP header, R8 the header's
// first 16 bits, R9 the DSCP.
func (t Table) instructions() asm.Instructions {
	out := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.Mov.Imm(asm.R7, headerAt),
		asm.LoadAbs(typeOffset, asm.Half),
		asm.JNE.Imm(asm.R0, 0x8100, "type"),
		asm.Mov.Imm(asm.R7, headerAt+tagLength),
		asm.LoadAbs(typeOffset+tagLength, asm.Half),
	}
	for i, f := range families {
		test := asm.JEq.Imm(asm.R0, f.etherType, f.name)
		if i == 0 {
			test = test.WithSymbol("type")
		}
		out = append(out, test)
	}
	out = append(out, asm.Mov.Imm(asm.R0, 0).WithSymbol("none"), asm.Return())
	for _, f := range families {
		out = append(out, t.look(f)...)
		out = append(out, restore(f)...)
	}
	return out
}

// look finds the packet's DSCP in the table.
func (t Table) look(f family) asm.Instructions {
	out := asm.Instructions{
		asm.LoadInd(asm.R0, asm.R7, 0, asm.Half).WithSymbol(f.name),
		asm.Mov.Reg(asm.R8, asm.R0),
		asm.Mov.Reg(asm.R9, asm.R0),
		asm.RSh.Imm(asm.R9, f.shift),
		asm.And.Imm(asm.R9, 0x3f),
	}
	for i, e := range t {
		next := fmt.Sprintf("%s-%d", f.name, i+1)
		test := asm.JNE.Imm(asm.R9, int32(e.Mark), next)
		if i > 0 {
			test = test.WithSymbol(fmt.Sprintf("%s-%d", f.name, i))
		}
		out = append(out, test,
			asm.Mov.Imm(asm.R9, int32(e.Own)<<f.shift),
			asm.StoreImm(asm.RFP, classSlot, htbMajor<<16|int64(classOf(e.Queue)), asm.Word),
			asm.Ja.Label(f.name+"-restore"))
	}
	end := asm.Mov.Imm(asm.R0, 0)
	if len(t) > 0 {
		end = end.WithSymbol(fmt.Sprintf("%s-%d", f.name, len(t)))
	}
	return append(out, end, asm.Return())
}

// restore writes the DSCP in R9 into the packet, mends the checksum, and returns the
// class.
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
