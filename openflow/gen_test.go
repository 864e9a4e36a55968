package openflow

import (
	"slices"

	"pgregory.net/rapid"
)

// Generators of values for the property tests. They make what the constructors
// make, so that a message must come back from the wire equal.

var (
	u8  = rapid.Uint8()
	u16 = rapid.Uint16()
	u32 = rapid.Uint32()
	u64 = rapid.Uint64()
)

// genBytes returns up to n bytes, nil for none.
func genBytes(n int) *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		b := rapid.SliceOfN(rapid.Byte(), 0, n).Draw(t, "bytes")
		return slices.Clip(append([]byte{}, b...))
	})
}

// genList returns up to n values, nil for none.
func genList[T any](g *rapid.Generator[T], n int) *rapid.Generator[[]T] {
	return rapid.Custom(func(t *rapid.T) []T {
		return append([]T(nil), rapid.SliceOfN(g, 0, n).Draw(t, "list")...)
	})
}

// genOXM returns the field with any value, masked or not, in canonical form.
func genOXM(f Field, mayMask bool) *rapid.Generator[OXM] {
	return rapid.Custom(func(t *rapid.T) OXM {
		o := OXM{Field: f}
		limit := fieldMasks[f].store()
		raw := rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "value")
		for i := range limit {
			o.Value[i] = raw[i] & limit[i]
		}
		if mayMask && f.Maskable() && rapid.Bool().Draw(t, "masked") {
			o.Masked = true
			for i := range limit {
				o.Mask[i] = raw[16+i] & limit[i]
				o.Value[i] &= o.Mask[i]
			}
		}
		return o
	})
}

// genMatch returns a match of up to six fields with all that they presuppose.
func genMatch() *rapid.Generator[Match] {
	return rapid.Custom(func(t *rapid.T) Match {
		chosen := make(map[Field]OXM)
		for range rapid.IntRange(0, 6).Draw(t, "fields") {
			f := Field(rapid.IntRange(0, int(numFields)-1).Draw(t, "field"))
			if _, taken := chosen[f]; !taken && presuppose(chosen, f) {
				chosen[f] = genOXM(f, true).Draw(t, "oxm")
			}
		}
		oxms := make([]OXM, 0, len(chosen))
		for f := range numFields {
			if o, ok := chosen[f]; ok {
				oxms = append(oxms, o)
			}
		}
		m, err := NewMatch(rapid.Permutation(oxms).Draw(t, "order")...)
		if err != nil {
			// A drawn field may be too wide in a way that another needs it
			// exact: then the match is refused, and that is right.
			return Match{}
		}
		return m
	})
}

// presuppose adds what the field needs. It reports false when the fields
// chosen already contradict it.
func presuppose(chosen map[Field]OXM, f Field) bool {
	var add []OXM
	for _, need := range fields[f].needs {
		if have, ok := chosen[need.field]; ok {
			if !need.holds(&have) {
				return false
			}
			continue
		}
		switch {
		case need.bits != 0:
			add = append(add, oxmUint(need.field, need.bits|5))
		case len(need.values) > 0:
			add = append(add, oxmUint(need.field, need.values[0]))
		default:
			add = append(add, oxmUint(need.field, 1))
		}
	}
	for _, o := range add {
		chosen[o.Field] = o
	}
	return true
}

func genAction() *rapid.Generator[Action] {
	return rapid.Custom(func(t *rapid.T) Action {
		v8, v16, v32 := u8.Draw(t, "u8"), u16.Draw(t, "u16"), u32.Draw(t, "u32")
		switch rapid.IntRange(0, 16).Draw(t, "kind") {
		case 0:
			return Action{Type: ActionOutput, Arg: v32, MaxLen: v16}
		case 1:
			return CopyTTLOut()
		case 2:
			return CopyTTLIn()
		case 3:
			return SetMPLSTTL(v8)
		case 4:
			return DecMPLSTTL()
		case 5:
			return PushVLAN(v16)
		case 6:
			return PopVLAN()
		case 7:
			return PushMPLS(v16)
		case 8:
			return PopMPLS(v16)
		case 9:
			return SetQueue(v32)
		case 10:
			return GroupAction(v32)
		case 11:
			return SetNWTTL(v8)
		case 12:
			return DecNWTTL()
		case 13:
			return PushPBB(v16)
		case 14:
			return PopPBB()
		case 15:
			return ExperimenterAction(v32, make([]byte, 8*(v8%4)))
		}
		f := Field(rapid.IntRange(0, int(numFields)-1).Filter(func(f int) bool { return Field(f).Settable() }).Draw(t, "field"))
		return SetField(genOXM(f, false).Draw(t, "oxm"))
	})
}

func genActions() *rapid.Generator[[]Action] { return genList(genAction(), 4) }

func genInstruction() *rapid.Generator[Instruction] {
	return rapid.Custom(func(t *rapid.T) Instruction {
		switch rapid.IntRange(0, 6).Draw(t, "kind") {
		case 0:
			return GotoTable(u8.Draw(t, "table"))
		case 1:
			return WriteMetadata(u64.Draw(t, "metadata"), u64.Draw(t, "mask"))
		case 2:
			return WriteActions(genActions().Draw(t, "actions")...)
		case 3:
			return ClearActions()
		case 4:
			return Meter(u32.Draw(t, "meter"))
		case 5:
			return Instruction{Type: InstructionExperimenter, Experimenter: u32.Draw(t, "experimenter"), Data: make([]byte, 8*(u8.Draw(t, "size")%3))}
		}
		return ApplyActions(genActions().Draw(t, "actions")...)
	})
}

func genBucket() *rapid.Generator[Bucket] {
	return rapid.Custom(func(t *rapid.T) Bucket {
		return Bucket{u16.Draw(t, "weight"), u32.Draw(t, "port"), u32.Draw(t, "group"), genActions().Draw(t, "actions")}
	})
}

func genBand() *rapid.Generator[MeterBand] {
	return rapid.Custom(func(t *rapid.T) MeterBand {
		k := MeterBand{Type: BandDrop, Rate: u32.Draw(t, "rate"), Burst: u32.Draw(t, "burst")}
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 1:
			k.Type, k.PrecLevel = BandDSCPRemark, u8.Draw(t, "level")
		case 2:
			k.Type, k.Experimenter = BandExperimenter, u32.Draw(t, "experimenter")
		}
		return k
	})
}

func genDuration() *rapid.Generator[Duration] {
	return rapid.Custom(func(t *rapid.T) Duration { return Duration{u32.Draw(t, "s"), u32.Draw(t, "ns")} })
}

func genName(n int) *rapid.Generator[string] {
	return rapid.StringMatching(`[a-z0-9.-]{0,15}`).Filter(func(s string) bool { return len(s) < n })
}

func genPort() *rapid.Generator[Port] {
	return rapid.Custom(func(t *rapid.T) Port {
		p := rapid.Make[Port]().Draw(t, "port")
		p.Name = genName(16).Draw(t, "name")
		return p
	})
}
