package openflow

import "pgregory.net/rapid"

func genFilter(t *rapid.T) FlowFilter {
	return FlowFilter{
		u8.Draw(t, "table"), u32.Draw(t, "port"), u32.Draw(t, "group"),
		u64.Draw(t, "cookie"), u64.Draw(t, "mask"), genMatch().Draw(t, "match"),
	}
}

func genRequest(t *rapid.T) MultipartBody {
	return rapid.SampledFrom([]func() MultipartBody{
		func() MultipartBody { return &DescRequest{} },
		func() MultipartBody { return &FlowStatsRequest{genFilter(t)} },
		func() MultipartBody { return &AggregateStatsRequest{genFilter(t)} },
		func() MultipartBody { return &TableStatsRequest{} },
		func() MultipartBody { return &PortStatsRequest{u32.Draw(t, "port")} },
		func() MultipartBody { return &QueueStatsRequest{u32.Draw(t, "port"), u32.Draw(t, "queue")} },
		func() MultipartBody { return &GroupStatsRequest{u32.Draw(t, "group")} },
		func() MultipartBody { return &GroupDescRequest{} },
		func() MultipartBody { return &GroupFeaturesRequest{} },
		func() MultipartBody { return &MeterStatsRequest{u32.Draw(t, "meter")} },
		func() MultipartBody { return &MeterConfigRequest{u32.Draw(t, "meter")} },
		func() MultipartBody { return &MeterFeaturesRequest{} },
		func() MultipartBody { return &PortDescRequest{} },
		func() MultipartBody {
			r := TableFeaturesRequest(genList(genTable(), 2).Draw(t, "tables"))
			return &r
		},
		func() MultipartBody { return genRaw(t) },
	}).Draw(t, "request")()
}

func genRaw(t *rapid.T) MultipartBody {
	return &ExperimenterMultipart{u32.Draw(t, "experimenter"), u32.Draw(t, "type"), genBytes(40).Draw(t, "data")}
}

// genRecords returns up to three records; a decoded list is never nil where
// the records have a fixed size.
func genRecords[T any](t *rapid.T, g *rapid.Generator[T]) []T {
	return append([]T{}, genList(g, 3).Draw(t, "records")...)
}

func genReply(t *rapid.T) MultipartBody {
	return rapid.SampledFrom([]func(*rapid.T) MultipartBody{
		func(t *rapid.T) MultipartBody {
			name := genName(16)
			return &Desc{name.Draw(t, "mfr"), name.Draw(t, "hw"), name.Draw(t, "sw"), name.Draw(t, "serial"), name.Draw(t, "dp")}
		},
		genFlowReply,
		func(t *rapid.T) MultipartBody {
			return rapid.Ptr(rapid.Make[AggregateStats](), false).Draw(t, "aggregate")
		},
		func(t *rapid.T) MultipartBody {
			r := TableStatsReply(genRecords(t, rapid.Make[TableStats]()))
			return &r
		},
		func(t *rapid.T) MultipartBody {
			r := PortStatsReply(genRecords(t, rapid.Make[PortStats]()))
			return &r
		},
		func(t *rapid.T) MultipartBody {
			r := QueueStatsReply(genRecords(t, rapid.Make[QueueStats]()))
			return &r
		},
		func(t *rapid.T) MultipartBody {
			r := PortDescReply(genRecords(t, genPort()))
			return &r
		},
		genGroupReply, genMeterReply,
		func(t *rapid.T) MultipartBody {
			return rapid.Ptr(rapid.Make[GroupFeatures](), false).Draw(t, "group features")
		},
		func(t *rapid.T) MultipartBody {
			return rapid.Ptr(rapid.Make[MeterFeatures](), false).Draw(t, "meter features")
		},
		func(t *rapid.T) MultipartBody {
			r := TableFeaturesReply(genList(genTable(), 2).Draw(t, "tables"))
			return &r
		},
		genRaw,
	}).Draw(t, "reply")(t)
}

func genFlowReply(t *rapid.T) MultipartBody {
	flow := rapid.Custom(func(t *rapid.T) FlowStats {
		return FlowStats{
			Table: u8.Draw(t, "table"), Duration: genDuration().Draw(t, "duration"), Priority: u16.Draw(t, "priority"),
			IdleTimeout: u16.Draw(t, "idle"), HardTimeout: u16.Draw(t, "hard"), Flags: u16.Draw(t, "flags"), Cookie: u64.Draw(t, "cookie"),
			Packets: u64.Draw(t, "packets"), Bytes: u64.Draw(t, "bytes"), Match: genMatch().Draw(t, "match"),
			Instructions: genList(genInstruction(), 2).Draw(t, "instructions"),
		}
	})
	r := FlowStatsReply(genList(flow, 3).Draw(t, "flows"))
	return &r
}

func genCounters(t *rapid.T) []Counter { return genRecords(t, rapid.Make[Counter]()) }

func genGroupReply(t *rapid.T) MultipartBody {
	if rapid.Bool().Draw(t, "desc") {
		r := GroupDescReply(genList(rapid.Custom(func(t *rapid.T) GroupDesc {
			return GroupDesc{GroupType(u8.Draw(t, "type")), u32.Draw(t, "group"), genList(genBucket(), 2).Draw(t, "buckets")}
		}), 3).Draw(t, "groups"))
		return &r
	}
	r := GroupStatsReply(genList(rapid.Custom(func(t *rapid.T) GroupStats {
		return GroupStats{
			u32.Draw(t, "group"), u32.Draw(t, "refs"), rapid.Make[Counter]().Draw(t, "counter"),
			genDuration().Draw(t, "duration"), genCounters(t),
		}
	}), 3).Draw(t, "groups"))
	return &r
}

func genMeterReply(t *rapid.T) MultipartBody {
	if rapid.Bool().Draw(t, "config") {
		r := MeterConfigReply(genList(rapid.Custom(func(t *rapid.T) MeterConfig {
			return MeterConfig{u16.Draw(t, "flags"), u32.Draw(t, "meter"), genList(genBand(), 2).Draw(t, "bands")}
		}), 3).Draw(t, "meters"))
		return &r
	}
	r := MeterStatsReply(genList(rapid.Custom(func(t *rapid.T) MeterStats {
		return MeterStats{
			u32.Draw(t, "meter"), u32.Draw(t, "flows"), rapid.Make[Counter]().Draw(t, "counter"),
			genDuration().Draw(t, "duration"), genCounters(t),
		}
	}), 3).Draw(t, "meters"))
	return &r
}

func genTable() *rapid.Generator[TableFeatures] {
	field := rapid.Custom(func(t *rapid.T) FieldID {
		return NewFieldID(Field(rapid.IntRange(0, int(numFields)-1).Draw(t, "field")), rapid.Bool().Draw(t, "masked"))
	})
	id := rapid.Custom(func(t *rapid.T) FeatureID {
		if rapid.Bool().Draw(t, "experimenter") {
			return FeatureID{0xffff, u32.Draw(t, "id")}
		}
		return FeatureID{Type: u16.Draw(t, "type") &^ 0x8000}
	})
	feature := rapid.Custom(func(t *rapid.T) TableFeature {
		types := []TableProperty{
			TableInstructions, TableInstructionsMiss, TableNextTables, TableWriteActions, TableApplyActionsMiss,
			TableMatch, TableWildcards, TableApplySetField, TableExperimenter, 0x63,
		}
		f := TableFeature{Type: rapid.SampledFrom(types).Draw(t, "type")}
		switch tableProperties[f.Type].content {
		case contentIDs:
			f.IDs = genList(id, 3).Draw(t, "ids")
		case contentTables:
			f.Tables = genBytes(5).Draw(t, "tables")
		case contentFields:
			f.Fields = genList(field, 3).Draw(t, "fields")
		case contentRaw:
			f.Raw = genBytes(9).Draw(t, "raw")
		}
		return f
	})
	return rapid.Custom(func(t *rapid.T) TableFeatures {
		return TableFeatures{
			u8.Draw(t, "table"), genName(32).Draw(t, "name"), u64.Draw(t, "match"), u64.Draw(t, "write"),
			u32.Draw(t, "config"), u32.Draw(t, "entries"), genList(feature, 4).Draw(t, "features"),
		}
	})
}
