package openflow

func groupSamples() []sample {
	return []sample{
		{"group-all", &GroupMod{Type: GroupTypeAll, Group: 1, Buckets: []Bucket{NewBucket(Output(1)), NewBucket(SetField(EthDst(mac1)), Output(2))}}, []string{
			"OFPT_GROUP_MOD", "ADD group_id=1,type=all,bucket=actions=output:1,bucket=actions=set_field:02:00:00:00:00:01->eth_dst,output:2",
		}},
		{"group-select", &GroupMod{Command: GroupModify, Type: GroupTypeSelect, Group: 2, Buckets: []Bucket{
			{Weight: 3, WatchPort: PortAny, WatchGroup: GroupAny, Actions: []Action{Output(1)}},
			{Weight: 5, WatchPort: PortAny, WatchGroup: GroupAny, Actions: []Action{GroupAction(7)}},
		}}, []string{"MOD group_id=2,type=select,bucket=weight:3,actions=output:1,bucket=weight:5,actions=group:7"}},
		{"group-indirect", &GroupMod{Type: GroupTypeIndirect, Group: 3, Buckets: []Bucket{NewBucket(Output(4))}}, []string{"group_id=3,type=indirect,bucket=actions=output:4"}},
		{"group-failover", &GroupMod{Type: GroupTypeFastFailover, Group: 4, Buckets: []Bucket{
			{WatchPort: 1, WatchGroup: GroupAny, Actions: []Action{Output(1)}},
			{WatchPort: PortAny, WatchGroup: 2, Actions: []Action{Output(2)}},
		}}, []string{"group_id=4,type=ff,bucket=watch_port:1,actions=output:1,bucket=watch_group:2,actions=output:2"}},
		{"group-delete-all", &GroupMod{Command: GroupDelete, Group: GroupAll}, []string{"DEL group_id=4294967292"}},
		{"meter-drop", &MeterMod{Flags: MeterFlagKbps | MeterFlagBurst | MeterFlagStats, Meter: 5, Bands: []MeterBand{{Type: BandDrop, Rate: 1000, Burst: 100}}}, []string{
			"OFPT_METER_MOD", "ADD meter=5 kbps burst stats bands=", "type=drop rate=1000 burst_size=100",
		}},
		{"meter-remark", &MeterMod{Command: MeterModify, Flags: MeterFlagPktps, Meter: 6, Bands: []MeterBand{{Type: BandDSCPRemark, Rate: 50, PrecLevel: 2}}}, []string{
			"MOD meter=6 pktps bands=", "type=dscp_remark rate=50 prec_level=2",
		}},
		{"meter-delete", &MeterMod{Command: MeterDelete, Meter: MeterAll}, []string{"DEL meter=all"}},
		{"queue-config-request", &QueueConfigRequest{Port: 3}, []string{"OFPT_QUEUE_GET_CONFIG_REQUEST", "port=3"}},
		{"queue-config-reply", &QueueConfigReply{Port: 3, Queues: []Queue{{ID: 1, Port: 3, MinRate: 100, MaxRate: RateUnknown}, {ID: 2, Port: 3, MinRate: RateUnknown, MaxRate: 505}}}, []string{
			"OFPT_QUEUE_GET_CONFIG_REPLY", "queue 1:", "min_rate:10.0%", "queue 2:", "max_rate:50.5%",
		}},
	}
}

func requestSamples() []sample {
	ask := func(body MultipartBody) Message { return &MultipartRequest{Body: body} }
	filter := FlowFilter{Table: 3, OutPort: 4, OutGroup: GroupAny, Cookie: 0x51, CookieMask: 0xff, Match: MustMatch(InPort(9))}
	return []sample{
		{"request-desc", ask(&DescRequest{}), []string{"OFPST_DESC request (OF1.3)"}},
		{"request-flow", ask(&FlowStatsRequest{filter}), []string{"OFPST_FLOW request", "table=3 out_port=4 in_port=9"}},
		{"request-flow-all", ask(&FlowStatsRequest{AllFlows()}), []string{"OFPST_FLOW request (OF1.3)"}},
		{"request-aggregate", ask(&AggregateStatsRequest{filter}), []string{"OFPST_AGGREGATE request", "table=3", "in_port=9"}},
		{"request-table", ask(&TableStatsRequest{}), []string{"OFPST_TABLE request"}},
		{"request-port", ask(&PortStatsRequest{Port: PortAny}), []string{"OFPST_PORT request", "port_no=ANY"}},
		{"request-queue", ask(&QueueStatsRequest{Port: PortAny, Queue: QueueAll}), []string{"OFPST_QUEUE request", "port=ANY queue=ALL"}},
		{"request-group", ask(&GroupStatsRequest{Group: 8}), []string{"OFPST_GROUP request", "group_id=8"}},
		{"request-group-desc", ask(&GroupDescRequest{}), []string{"OFPST_GROUP_DESC request"}},
		{"request-group-features", ask(&GroupFeaturesRequest{}), []string{"OFPST_GROUP_FEATURES request"}},
		{"request-meter", ask(&MeterStatsRequest{Meter: 5}), []string{"OFPST_METER request", "meter=5"}},
		{"request-meter-config", ask(&MeterConfigRequest{Meter: MeterAll}), []string{"OFPST_METER_CONFIG request", "meter=all"}},
		{"request-meter-features", ask(&MeterFeaturesRequest{}), []string{"OFPST_METER_FEATURES request"}},
		{"request-table-features", ask(&TableFeaturesRequest{}), []string{"OFPST_TABLE_FEATURES request"}},
		{"request-port-desc", ask(&PortDescRequest{}), []string{"OFPST_PORT_DESC request"}},
		{"request-experimenter", ask(&ExperimenterMultipart{Experimenter: 0x1234, ExpType: 5, Data: []byte("whatever")}), []string{"OFPBRC_BAD_VENDOR"}},
	}
}

func replySamples() []sample {
	answer := func(body MultipartBody) Message { return &MultipartReply{Body: body} }
	return []sample{
		{"reply-desc", answer(&Desc{"Sluice", "fake", "1", "007", "lab"}), []string{
			"Manufacturer: Sluice", "Hardware: fake", "Software: 1", "Serial Num: 007", "DP Description: lab",
		}},
		{"reply-flow", &MultipartReply{More: true, Body: &FlowStatsReply{
			{Table: 1, Duration: Duration{5, 0}, Priority: 9, Cookie: 0x51, Packets: 3, Bytes: 180, Flags: FlagSendFlowRemoved, Match: MustMatch(InPort(1)), Instructions: []Instruction{ApplyActions(Output(2))}},
			{Table: 2, Duration: Duration{0, 2_000_000}, Priority: 8, IdleTimeout: 30, HardTimeout: 60, Match: Match{}},
		}}, []string{
			"OFPST_FLOW reply", "more", "cookie=0x51, duration=5s, table=1, n_packets=3, n_bytes=180, send_flow_rem priority=9,in_port=1 actions=output:2",
			"duration=0.002s, table=2", "idle_timeout=30, hard_timeout=60, priority=8 actions=drop",
		}},
		{"reply-aggregate", answer(&AggregateStats{Packets: 1, Bytes: 2, Flows: 3}), []string{"packet_count=1 byte_count=2 flow_count=3"}},
		{"reply-table", answer(&TableStatsReply{{Table: 4, Active: 11, Lookups: 12, Matched: 13}}), []string{"table 4:", "active=11, lookup=12, matched=13"}},
		{"reply-port", answer(&PortStatsReply{{
			Port: 2, RxPackets: 1, TxPackets: 2, RxBytes: 3, TxBytes: 4, RxDropped: 5, TxDropped: 6, RxErrors: 7, TxErrors: 8,
			RxFrameErr: 9, RxOverErr: 10, RxCRCErr: Unsupported, Collisions: 12, Duration: Duration{13, 0},
		}}), []string{"port  2: rx pkts=1, bytes=3, drop=5, errs=7, frame=9, over=10, crc=?", "tx pkts=2, bytes=4, drop=6, errs=8, coll=12", "duration=13s"}},
		{"reply-queue", answer(&QueueStatsReply{{Port: 3, Queue: 4, TxBytes: 5, TxPackets: 6, TxErrors: 7, Duration: Duration{8, 0}}}), []string{"port 3 queue 4: bytes=5, pkts=6, errors=7, duration=8s"}},
		{"reply-group", answer(&GroupStatsReply{{Group: 1, RefCount: 2, Counter: Counter{3, 4}, Duration: Duration{5, 0}, Buckets: []Counter{{6, 7}, {8, 9}}}}), []string{
			"group_id=1,duration=5s,ref_count=2,packet_count=3,byte_count=4,bucket0:packet_count=6,byte_count=7,bucket1:packet_count=8,byte_count=9",
		}},
		{"reply-group-desc", answer(&GroupDescReply{{Type: GroupTypeSelect, Group: 7, Buckets: []Bucket{{Weight: 2, WatchPort: PortAny, WatchGroup: GroupAny, Actions: []Action{Output(1)}}}}}), []string{
			"group_id=7,type=select,bucket=weight:2,actions=output:1",
		}},
		{"reply-group-features", answer(&GroupFeatures{Types: 0xf, Capabilities: GroupCapSelectWeight | GroupCapChaining, MaxGroups: [4]uint32{1, 2, 3, 4}, Actions: [4]uint32{1, 1, 1, 1}}), []string{
			"Capabilities:  0x5", "all group:\n       max_groups=0x1\n       actions: output", "fast failover group:\n       max_groups=0x4",
		}},
		{"reply-meter", answer(&MeterStatsReply{{Meter: 1, Flows: 2, Counter: Counter{3, 4}, Duration: Duration{5, 0}, Bands: []Counter{{6, 7}}}}), []string{
			"meter:1 flow_count:2 packet_in_count:3 byte_in_count:4 duration:5s bands:", "0: packet_count:6 byte_count:7",
		}},
		{"reply-meter-config", answer(&MeterConfigReply{{Flags: MeterFlagKbps, Meter: 1, Bands: []MeterBand{{Type: BandDrop, Rate: 10}}}}), []string{"meter=1 kbps bands=", "type=drop rate=10"}},
		{"reply-meter-features", answer(&MeterFeatures{MaxMeter: 100, BandTypes: 1 << BandDrop, Capabilities: 3, MaxBands: 4, MaxColor: 5}), []string{
			"max_meter:100 max_bands:4 max_color:5", "band_types: drop", "capabilities: kbps pktps",
		}},
		{"reply-table-features", answer(&TableFeaturesReply{{
			Table: 0, Name: "access", MetadataMatch: 0xff, MetadataWrite: 0xf, MaxEntries: 1000,
			Features: []TableFeature{
				{Type: TableInstructions, IDs: []FeatureID{{Type: 1}, {Type: 4}}},
				{Type: TableNextTables, Tables: []uint8{1, 2, 3}},
				{Type: TableWriteActions, IDs: []FeatureID{{Type: 0}}},
				{Type: TableApplyActions, IDs: []FeatureID{{Type: 0}, {Type: 25}}},
				{Type: TableMatch, Fields: []FieldID{NewFieldID(FieldEthDst, true), NewFieldID(FieldTCPFlags, true)}},
				{Type: TableWildcards, Fields: []FieldID{NewFieldID(FieldEthDst, false), NewFieldID(FieldTCPFlags, false)}},
				{Type: TableWriteSetField},
				{Type: TableApplySetField, Fields: []FieldID{NewFieldID(FieldIPv4Dst, false)}},
			},
		}}), []string{
			`table 0 ("access"):`, "match=0xff write=0xf", "max_entries=1000", "next tables: 1-3", "apply_actions", "goto_table",
			"actions: output set_field", "supported on Set-Field: ip_dst", "arbitrary mask: eth_dst tcp_flags",
		}},
		{"reply-port-desc", answer(&PortDescReply{uplink}), []string{"3(uplink): addr:02:00:00:00:00:01", "current:    10GB-FD FIBER"}},
		{"reply-experimenter", answer(&ExperimenterMultipart{Experimenter: 0x1234, ExpType: 5}), []string{"OFPBRC_BAD_VENDOR"}},
	}
}

func experimenterSamples() []sample {
	return []sample{
		{"experimenter", &Experimenter{Experimenter: 0x12345678, ExpType: 9, Data: []byte("payload")}, []string{"OFPBRC_BAD_VENDOR"}},
		{"bundle-open", &BundleControl{Bundle: 5, Op: BundleOpenRequest, Flags: BundleAtomic | BundleOrdered}, []string{"ONFT_BUNDLE_CONTROL", "bundle_id=0x5 type=OPEN_REQUEST flags=atomic ordered"}},
		{"bundle-commit-reply", &BundleControl{Bundle: 5, Op: BundleCommitReply, Flags: BundleAtomic}, []string{"bundle_id=0x5 type=COMMIT_REPLY flags=atomic"}},
		{"bundle-discard", &BundleControl{Bundle: 5, Op: BundleDiscardRequest}, []string{"type=DISCARD_REQUEST"}},
		{"bundle-add", &BundleAdd{Bundle: 5, Flags: BundleAtomic, Message: flow(InPort(7))}, []string{"ONFT_BUNDLE_ADD_MESSAGE", "bundle_id=0x5 flags=atomic", "OFPT_FLOW_MOD", "in_port=7"}},
		{"bundle-add-port", &BundleAdd{Bundle: 6, Message: &PortMod{Port: 3, MAC: mac1}}, []string{"bundle_id=0x6", "OFPT_PORT_MOD"}},
		{"bundle-add-group", &BundleAdd{Bundle: 6, Message: &GroupMod{Group: 3, Type: GroupTypeAll, Buckets: []Bucket{NewBucket(Output(1))}}}, []string{"OFPT_GROUP_MOD", "group_id=3"}},
		{"insert-bucket", &ExtGroupMod{Command: GroupInsertBucket, Type: GroupTypeSelect, Group: 5, CommandBucket: BucketLast, Buckets: []ExtBucket{
			{4, Bucket{Weight: 7, WatchPort: 3, WatchGroup: GroupAny, Actions: []Action{Output(2)}}},
			{5, Bucket{Weight: 1, WatchPort: PortAny, WatchGroup: 9, Actions: []Action{GroupAction(3), Output(1)}}},
		}}, []string{"OFPBRC_BAD_SUBTYPE"}},
		{"insert-bucket-all", &ExtGroupMod{Command: GroupInsertBucket, Type: GroupTypeAll, Group: 6, CommandBucket: BucketFirst, Buckets: []ExtBucket{{1, NewBucket(Output(2))}}}, []string{"OFPBRC_BAD_SUBTYPE"}},
		{"remove-bucket", &ExtGroupMod{Command: GroupRemoveBucket, Group: 5, CommandBucket: 4}, []string{"OFPBRC_BAD_SUBTYPE"}},
	}
}
