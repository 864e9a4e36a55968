package openflow

import "fmt"

// InstructionType is the number of an instruction on the wire.
type InstructionType uint16

// The instructions of OpenFlow 1.3.
const (
	InstructionGotoTable     InstructionType = 1
	InstructionWriteMetadata InstructionType = 2
	InstructionWriteActions  InstructionType = 3
	InstructionApplyActions  InstructionType = 4
	InstructionClearActions  InstructionType = 5
	InstructionMeter         InstructionType = 6
	InstructionExperimenter  InstructionType = 0xffff
)

type instructionInfo struct {
	name string
	size int // bytes on the wire; 0: variable
}

// instructionTable describes every instruction. The last row is the
// experimenter's.
var instructionTable = [...]instructionInfo{
	InstructionGotoTable:     {"goto_table", 8},
	InstructionWriteMetadata: {"write_metadata", 24},
	InstructionWriteActions:  {"write_actions", 0},
	InstructionApplyActions:  {"apply_actions", 0},
	InstructionClearActions:  {"clear_actions", 8},
	InstructionMeter:         {"meter", 8},
	InstructionMeter + 1:     {"experimenter", 0},
}

// info returns the row of the instruction, and whether there is one.
func (t InstructionType) info() (*instructionInfo, bool) {
	row := int(t)
	if t == InstructionExperimenter {
		row = len(instructionTable) - 1
	} else if row >= len(instructionTable)-1 {
		return nil, false
	}
	return &instructionTable[row], instructionTable[row].name != ""
}

// String returns the instruction's name.
func (t InstructionType) String() string {
	if info, ok := t.info(); ok {
		return info.name
	}
	return fmt.Sprintf("instruction(%d)", uint16(t))
}

// Instruction is an instruction of a flow entry. Type determines which of the other fields are
// used; the rest are zero.
type Instruction struct {
	Type           InstructionType
	Table          uint8    // goto-table
	Meter          uint32   // meter
	Metadata, Mask uint64   // write-metadata
	Actions        []Action // write-actions, apply-actions
	Experimenter   uint32   // experimenter
	Data           []byte   // experimenter: the bytes after the identifier
}

// ApplyActions applies the actions immediately, in the given order.
func ApplyActions(actions ...Action) Instruction {
	return Instruction{Type: InstructionApplyActions, Actions: actions}
}

// WriteActions merges the actions into the packet's action set, which is applied at the end of
// the pipeline.
func WriteActions(actions ...Action) Instruction {
	return Instruction{Type: InstructionWriteActions, Actions: actions}
}

// ClearActions empties the packet's action set.
func ClearActions() Instruction { return Instruction{Type: InstructionClearActions} }

// GotoTable continues in a later table.
func GotoTable(table uint8) Instruction {
	return Instruction{Type: InstructionGotoTable, Table: table}
}

// WriteMetadata writes the bits of the metadata that are set in mask.
func WriteMetadata(value, mask uint64) Instruction {
	return Instruction{Type: InstructionWriteMetadata, Metadata: value, Mask: mask}
}

// Meter counts the packet in a meter, which may drop or mark it.
func Meter(id uint32) Instruction { return Instruction{Type: InstructionMeter, Meter: id} }

func appendInstruction(b []byte, in *Instruction) ([]byte, error) {
	info, ok := in.Type.info()
	if !ok {
		return b, fmt.Errorf("openflow: instruction: %w: %d", ErrType, in.Type)
	}
	start := len(b)
	var err error
	b = put16(b, uint16(in.Type))
	b = put16(b, uint16(info.size))
	switch in.Type {
	case InstructionGotoTable:
		b = append(b, in.Table, 0, 0, 0)
	case InstructionWriteMetadata:
		b = put64(put64(pad(b, 4), in.Metadata), in.Mask)
	case InstructionWriteActions, InstructionApplyActions:
		b, err = appendActions(pad(b, 4), in.Actions)
		setLen16(b, start, 2)
	case InstructionClearActions:
		b = pad(b, 4)
	case InstructionMeter:
		b = put32(b, in.Meter)
	case InstructionExperimenter:
		if len(in.Data)&7 != 0 {
			return b, fmt.Errorf("openflow: instruction: %w: experimenter data of %d bytes, want a multiple of 8", ErrLength, len(in.Data))
		}
		b = append(put32(b, in.Experimenter), in.Data...)
		setLen16(b, start, 2)
	}
	return b, err
}

func appendInstructions(b []byte, ins []Instruction) ([]byte, error) {
	var err error
	for i := range ins {
		if b, err = appendInstruction(b, &ins[i]); err != nil {
			return b, err
		}
	}
	return b, nil
}

func parseInstructions(b []byte) ([]Instruction, error) {
	var ins []Instruction
	it := iterate(b, &instructionShape)
	for it.step() {
		var in Instruction
		if err := in.decode(it.elem, it.at); err != nil {
			return nil, err
		}
		ins = append(ins, in)
	}
	return ins, it.err
}

func (in *Instruction) decode(b []byte, at int) (err error) {
	in.Type = InstructionType(be.Uint16(b))
	info, ok := in.Type.info()
	if !ok {
		return &DecodeError{What: "instruction", Offset: at, Err: ErrType, Detail: fmt.Sprintf("%d is no instruction of OpenFlow 1.3", in.Type)}
	}
	if info.size != 0 && len(b) != info.size {
		return badLength("instruction", at, "%s has %d bytes, want %d", info.name, len(b), info.size)
	}
	switch in.Type {
	case InstructionGotoTable:
		in.Table = b[4]
	case InstructionWriteMetadata:
		in.Metadata, in.Mask = be.Uint64(b[8:]), be.Uint64(b[16:])
	case InstructionWriteActions, InstructionApplyActions:
		in.Actions, err = parseActions(nil, b[8:])
	case InstructionMeter:
		in.Meter = be.Uint32(b[4:])
	case InstructionExperimenter:
		in.Experimenter, in.Data = be.Uint32(b[4:]), b[8:]
	}
	return err
}
