package openflow

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestFlowsComeBackFromOpenVSwitch installs the matches and actions of the
// samples on a running switch and asks for them again: what the switch holds is
// what was meant.
func TestFlowsComeBackFromOpenVSwitch(t *testing.T) {
	s := startOVS(t).connect()
	group := &GroupMod{Type: GroupTypeAll, Group: 77, Buckets: []Bucket{NewBucket(Output(1))}}
	if replies := s.ask(group); len(replies) != 0 {
		t.Fatalf("%v: refused: %v", group, replies)
	}
	for _, c := range append(matchSamples(), actionSamples()...) {
		want := c.msg.(*FlowMod)
		replies := s.ask(want)
		if c.refused() {
			if len(replies) != 1 || !strings.Contains(replies[0].String(), "OFPET_BAD") && !strings.Contains(replies[0].String(), "OFPB") {
				t.Errorf("%s: got %v, want a refusal", c.name, replies)
			}
			continue
		}
		if len(replies) != 0 {
			t.Errorf("%s: refused: %v", c.name, replies)
			continue
		}
		flows := s.flows()
		if len(flows) != 1 {
			t.Errorf("%s: the switch holds %d flows, want 1: %v", c.name, len(flows), flows)
		} else if got := flows[0]; got.Match != want.Match || instructionList(got.Instructions) != instructionList(want.Instructions) {
			t.Errorf("%s: the switch holds\n%v %v\nwant\n%v %v", c.name, got.Match, got.Instructions, want.Match, want.Instructions)
		}
		if replies := s.ask(NewFlowMod(FlowDelete, TableAll, 0, Match{})); len(replies) != 0 {
			t.Fatalf("deletion refused: %v", replies)
		}
	}
}

// flows returns all flow entries of the switch.
func (s *session) flows() []FlowStats {
	s.t.Helper()
	var flows []FlowStats
	for _, m := range s.ask(&MultipartRequest{Body: &FlowStatsRequest{AllFlows()}}) {
		flows = append(flows, *m.(*MultipartReply).Body.(*FlowStatsReply)...)
	}
	return flows
}

// TestOpenVSwitchAnswers asks for everything that can be asked for.
func TestOpenVSwitchAnswers(t *testing.T) {
	s := startOVS(t).connect()
	for _, m := range []Message{
		&GroupMod{Type: GroupTypeSelect, Group: 5, Buckets: []Bucket{{Weight: 3, WatchPort: PortAny, WatchGroup: GroupAny, Actions: []Action{Output(1)}}}},
		&MeterMod{Flags: MeterFlagKbps, Meter: 7, Bands: []MeterBand{{Type: BandDrop, Rate: 1000}}},
		&SetConfig{Config{MissLen: 99}},
		&SetAsync{AsyncConfig{PacketIn: [2]uint32{3, 0}}},
		flow(InPort(1)),
	} {
		if replies := s.ask(m); len(replies) != 0 {
			t.Fatalf("%v: refused: %v", m, replies)
		}
	}
	for _, c := range []struct {
		ask  Message
		want string
	}{
		{&FeaturesRequest{}, "FEATURES_REPLY dpid=00000000000000a1 buffers=0 tables=254"},
		{&GetConfigRequest{}, "GET_CONFIG_REPLY frag=normal miss_len=99"},
		{&GetAsyncRequest{}, "GET_ASYNC_REPLY master: packet_in=0x3 port_status=0x0 flow_removed=0x0"},
		{&RoleRequest{RoleMaster, 1}, "ROLE_REPLY role=master generation=1"},
		{&RoleRequest{RoleMaster, 0}, "OFPRRFC_STALE"},
		{&EchoRequest{Data: []byte("hello")}, "ECHO_REPLY data=5 bytes"},
		{&QueueConfigRequest{Port: 1}, "QUEUE_GET_CONFIG_REPLY port=1"},
		{&MultipartRequest{Body: &DescRequest{}}, `manufacturer="Nicira, Inc." hardware="Open vSwitch"`},
		{&MultipartRequest{Body: &AggregateStatsRequest{AllFlows()}}, "packets=0 bytes=0 flows=1"},
		{&MultipartRequest{Body: &TableStatsRequest{}}, "table=0 active=1"},
		{&MultipartRequest{Body: &PortStatsRequest{Port: 2}}, "port=2 rx: packets=0"},
		{&MultipartRequest{Body: &QueueStatsRequest{Port: PortAny, Queue: QueueAll}}, "port=1 queue=0 tx: packets=? bytes=? errors=? duration=?"},
		{&MultipartRequest{Body: &GroupStatsRequest{Group: GroupAll}}, "group=5 ref_count=0 packets=0 bytes=0"},
		{&MultipartRequest{Body: &GroupDescRequest{}}, "group=5 type=select bucket={weight=3 actions=output:1}"},
		{&MultipartRequest{Body: &GroupFeaturesRequest{}}, "capabilities=select_weight|select_liveness|chaining"},
		{&MultipartRequest{Body: &MeterStatsRequest{Meter: MeterAll}}, "meter=7 flows=0 packets=0 bytes=0"},
		{&MultipartRequest{Body: &MeterConfigRequest{Meter: MeterAll}}, "meter=7 flags=kbps band={drop rate=1000 burst="},
		{&MultipartRequest{Body: &MeterFeaturesRequest{}}, "band_types=drop"},
		{&MultipartRequest{Body: &PortDescRequest{}}, `port 1("p1")`},
		{&MultipartRequest{Body: &ExperimenterMultipart{Experimenter: 0x1234}}, "OFPBRC_BAD_EXPERIMENTER"},
	} {
		replies := s.ask(c.ask)
		if len(replies) != 1 || !strings.Contains(replies[0].String(), c.want) {
			t.Errorf("%v: got %v, want %q", c.ask, replies, c.want)
		}
	}
}

// TestTableFeaturesOfOpenVSwitch reads the longest answer there is.
func TestTableFeaturesOfOpenVSwitch(t *testing.T) {
	s := startOVS(t).connect()
	var tables []TableFeatures
	for _, m := range s.ask(&MultipartRequest{Body: &TableFeaturesRequest{}}) {
		tables = append(tables, *m.(*MultipartReply).Body.(*TableFeaturesReply)...)
	}
	if len(tables) != 254 {
		t.Fatalf("got %d tables, want 254", len(tables))
	}
	first := &tables[0]
	for _, f := range []Field{FieldEthDst, FieldIPv4Src, FieldTCPDst, FieldVLANVID} {
		if !first.CanMatch(f) || !first.CanSet(f) {
			t.Errorf("%v: can match %v, can set %v, want both", f, first.CanMatch(f), first.CanSet(f))
		}
	}
	if !first.CanMatch(FieldTCPFlags) || first.CanSet(FieldTCPFlags) || first.CanMatch(FieldPBBISID) {
		t.Errorf("tcp_flags can be matched and not set, pbb_isid cannot be matched; got %v", first)
	}
}

// TestBundleIsAllOrNothing changes flows in bundles, one of them with a mistake.
func TestBundleIsAllOrNothing(t *testing.T) {
	s := startOVS(t).connect()
	bundle := func(id uint32, changes ...Message) []Message {
		control := func(op BundleOp) *BundleControl {
			return &BundleControl{Bundle: id, Op: op, Flags: BundleAtomic | BundleOrdered}
		}
		replies := s.ask(control(BundleOpenRequest))
		for _, m := range changes {
			replies = append(replies, s.ask(&BundleAdd{Bundle: id, Flags: BundleAtomic | BundleOrdered, Message: m})...)
		}
		return append(replies, s.ask(control(BundleCommitRequest))...)
	}
	replies := bundle(1, flow(InPort(1)), flow(InPort(2)))
	if len(replies) != 2 || !strings.Contains(replies[1].String(), "bundle=1 commit_reply") {
		t.Fatalf("got %v, want the replies to open and commit", replies)
	}
	if n := len(s.flows()); n != 2 {
		t.Fatalf("the switch holds %d flows, want 2", n)
	}
	toNowhere := NewFlowMod(FlowAdd, 0, 1, MustMatch(InPort(4)), ApplyActions(GroupAction(99)))
	replies = bundle(2, flow(InPort(3)), toNowhere)
	// The reply to open, the refusal of the message, the refusal to commit.
	t.Log(replies)
	if len(replies) != 3 || !isError(replies[1], NewErrorCode(ErrorTypeBadAction, 9)) || !isError(replies[2], BundleMessageFailed) {
		t.Errorf("got %v, want the reply to open and two refusals", replies)
	}
	if n := len(s.flows()); n != 2 {
		t.Errorf("the switch holds %d flows after a refused bundle, want 2", n)
	}
}

// TestExtendedGroupModOnOpenFlow13 pins what the documentation of ExtGroupMod
// says: this switch refuses it, precisely and without dropping the connection.
func TestExtendedGroupModOnOpenFlow13(t *testing.T) {
	s := startOVS(t).connect()
	replies := s.ask(findSample(t, "remove-bucket").msg)
	if len(replies) == 0 {
		t.Skip("this Open vSwitch takes it")
	}
	e, ok := replies[0].(*Error)
	if !ok || !errors.Is(e, BadRequestExpType) {
		t.Errorf("got %v, want %v", replies, BadRequestExpType)
	}
}

// TestPacketGoesRound sends a packet out through the table, gets it as a
// packet-in, and gets the flow-removed of a deleted entry.
func TestPacketGoesRound(t *testing.T) {
	s := startOVS(t).connect()
	// A connection that the controller opens gets nothing unasked by default.
	if replies := s.ask(&SetAsync{AsyncConfig{PacketIn: [2]uint32{7, 0}, FlowRemoved: [2]uint32{15, 0}}}); len(replies) != 0 {
		t.Fatal(replies)
	}
	punt := NewFlowMod(FlowAdd, 0, 9, MustMatch(InPort(1), EthType(0x88b5)), ApplyActions(OutputController(MaxLenNoBuffer)))
	punt.Cookie, punt.Flags = 0x51ce, FlagSendFlowRemoved
	if replies := s.ask(punt); len(replies) != 0 {
		t.Fatal(replies)
	}
	s.send(NewPacketOut(1, []Action{Output(PortTable)}, frame))
	in, ok := s.next().(*PacketIn)
	if !ok || in.Cookie != 0x51ce || in.InPort != 1 || in.Reason != ReasonAction || !bytes.Equal(in.Data, frame) {
		t.Fatalf("got %v, want the packet", in)
	}
	remove := NewFlowMod(FlowDelete, TableAll, 0, Match{})
	remove.Cookie, remove.CookieMask = 0x51ce, ^uint64(0)
	s.send(remove)
	gone, ok := s.next().(*FlowRemoved)
	if !ok || gone.Cookie != 0x51ce || gone.Reason != RemovedDelete || gone.Match != punt.Match || gone.Priority != 9 {
		t.Fatalf("got %v, want the removal of the entry", gone)
	}
}

// TestOfctlSpeaksWithUs decodes whatever ovs-ofctl and the switch say to each
// other, and encodes it again: nothing is lost that this package claims to know.
func TestOfctlSpeaksWithUs(t *testing.T) {
	o := startOVS(t)
	w := o.tap()
	for _, args := range [][]string{
		{"add-group", "group_id=5,type=select,bucket=weight:1,actions=output:1"},
		{"add-meter", "meter=3,kbps,burst,bands=type=drop,rate=100,burst_size=10"},
		{"add-flow", "table=3,priority=5,ct_state=+trk,ip,reg4=7,actions=ct(commit),load:7->NXM_NX_REG3[],output:4"},
		{"add-flow", "priority=6,tcp6,ipv6_dst=2001:db8::/32,tcp_flags=+syn,actions=meter:3,dec_ttl,group:5"},
		{"mod-port", "p1", "no-forward"},
		{"dump-flows"},
		{"dump-groups"},
		{"dump-group-stats"},
		{"dump-meters"},
		{"meter-stats"},
		{"dump-ports"},
		{"dump-ports-desc"},
		{"dump-tables"},
		{"dump-aggregate"},
		{"dump-desc"},
		{"queue-stats"},
		{"show"},
		{"--bundle", "add-flow", "priority=7,arp,actions=output:2"},
		{"del-flows"},
	} {
		verb := 1
		if strings.HasPrefix(args[0], "-") {
			verb = 2
		}
		full := append([]string{"-O", "OpenFlow13"}, args[:verb]...)
		full = append(append(full, w.addr), args[verb:]...)
		if out, err := o.command("ovs-ofctl", full...).CombinedOutput(); err != nil {
			t.Errorf("ovs-ofctl %v: %v\n%s", args, err, out)
		}
	}
	if *update {
		record(t, w.messages())
	}
	seen := make(map[MsgType]int)
	for _, b := range w.messages() {
		h, m, err := Decode(b)
		if err != nil {
			t.Errorf("%x: %v", b, err)
			continue
		}
		seen[h.Type]++
		// Open vSwitch orders the fields of a match in its own way; apart from
		// that, every byte comes back.
		again, err := m.AppendTo(nil, h.XID)
		if err != nil || !bytes.Equal(sorted(again), sorted(b)) {
			t.Errorf("%v: encoded again it is\n%x (%v), was\n%x", m, again, err, b)
			continue
		}
		if _, m2, err := Decode(again); err != nil || m2.String() != m.String() {
			t.Errorf("decoded again it is\n%v (%v), was\n%v", m2, err, m)
		}
	}
	for _, want := range []MsgType{TypeFlowMod, TypeGroupMod, TypeMeterMod, TypePortMod, TypeMultipartReply, TypeExperimenter} {
		if seen[want] == 0 {
			t.Errorf("no %v was seen among %v", want, seen)
		}
	}
}

func sorted(b []byte) []byte {
	b = slices.Clone(b)
	slices.Sort(b)
	return b
}

func isError(m Message, code ErrorCode) bool {
	e, ok := m.(*Error)
	return ok && errors.Is(e, code)
}
