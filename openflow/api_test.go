package openflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestDatapathID(t *testing.T) {
	for _, s := range []string{"00000000000000a1", "00:00:00:00:00:00:00:a1", "0x00000000000000A1"} {
		if d, err := ParseDatapathID(s); err != nil || d != 0xa1 || d.String() != "00000000000000a1" {
			t.Errorf("%q is %v (%v)", s, d, err)
		}
	}
	for _, s := range []string{"", "a1", "00000000000000a", "00000000000000a1a", "0000:00:00:00:00:00:a1", "00:00:00:00:00:00:00:g1", "+0000000000000a1", "1:2:3:4:5:6:7:8"} {
		if d, err := ParseDatapathID(s); err == nil {
			t.Errorf("%q is taken for %v", s, d)
		}
	}
	b, err := json.Marshal(map[DatapathID]MAC{0xa1: mac1})
	if err != nil || string(b) != `{"00000000000000a1":"02:00:00:00:00:01"}` {
		t.Errorf("JSON is %s (%v)", b, err)
	}
	var back map[DatapathID]MAC
	if err := json.Unmarshal(b, &back); err != nil || back[0xa1] != mac1 {
		t.Errorf("from JSON comes %v (%v)", back, err)
	}
}

func TestMAC(t *testing.T) {
	for _, s := range []string{"02:00:00:00:00:01", "02-00-00-00-00-01"} {
		if m, err := ParseMAC(s); err != nil || m != mac1 {
			t.Errorf("%q is %v (%v)", s, m, err)
		}
	}
	for _, s := range []string{"", "02:00:00:00:00", "02:00:00:00:00:0g", "02:00-00:00:00:01", "0200.0000.0001", "02 00 00 00 00 01"} {
		if m, err := ParseMAC(s); err == nil {
			t.Errorf("%q is taken for %v", s, m)
		}
	}
	if !Broadcast.IsMulticast() || mac1.IsMulticast() || mac1.IsZero() || !(MAC{}).IsZero() {
		t.Error("IsMulticast or IsZero is wrong")
	}
}

func TestErrorIsAGoError(t *testing.T) {
	refusal := &Error{Code: FlowModTableFull, Data: mustAppend(&BarrierRequest{})}
	err := fmt.Errorf("switch a1: %w", refusal)
	var found *Error
	if !errors.As(err, &found) || !errors.Is(err, FlowModTableFull) || !errors.Is(err, ErrorTypeFlowModFailed) {
		t.Errorf("%v is not recognised", err)
	}
	if errors.Is(err, FlowModOverlap) || errors.Is(err, ErrorTypeBadMatch) {
		t.Errorf("%v is taken for something else", err)
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{refusal, "openflow: OFPFMFC_TABLE_FULL: in reply to BARRIER_REQUEST"},
		{&Error{Code: HelloIncompatible, Data: []byte("no")}, `openflow: OFPHFC_INCOMPATIBLE: "no"`},
		{&Error{Code: NewErrorCode(ErrorTypeExperimenter, 2300), Experimenter: ExperimenterONF}, "openflow: OFPBFC_UNKNOWN"},
		{&Error{Code: NewErrorCode(ErrorTypeExperimenter, 1), Experimenter: 0x1234}, "openflow: experimenter error 0x1234/1"},
		{&Error{Code: NewErrorCode(99, 1)}, "openflow: error type 99 code 1"},
		{BadMatchPrerequisite, "openflow: OFPBMC_BAD_PREREQ"},
		{ErrorTypeMeterModFailed, "openflow: OFPET_METER_MOD_FAILED"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// TestEncodersRefuse checks that what cannot be sent is refused, that the error
// says why, and that the buffer stays as it was.
func TestEncodersRefuse(t *testing.T) {
	add := func(a ...Action) Message { return NewFlowMod(FlowAdd, 0, 1, Match{}, ApplyActions(a...)) }
	long := make([]byte, MaxMessage)
	for _, c := range []struct {
		name string
		msg  Message
		is   error
		want string
	}{
		{"unknown action", add(Action{Type: 99}), ErrType, "action: unexpected type: 99"},
		{"hole among the actions", add(Action{Type: 5}), ErrType, "5"},
		{"set in_port", add(SetField(InPort(1))), ErrValue, "in_port cannot be written"},
		{"set tcp_flags", add(SetField(TCPFlags(1, 0xfff))), ErrValue, "tcp_flags cannot be written"},
		{"set a part of a field", add(SetField(EthDst(MAC{}).WithMask(1))), ErrValue, "writes whole fields only"},
		{"set a wide value", add(SetField(VLANPCP(8))), ErrMatch, "wider than the field's 3 bits"},
		{"set no address", add(SetField(VLANVID(5000))), ErrMatch, "cannot hold"},
		{"odd experimenter action", add(ExperimenterAction(1, make([]byte, 3))), ErrLength, "want a multiple of 8"},
		{"unknown instruction", NewFlowMod(FlowAdd, 0, 1, Match{}, Instruction{Type: 42}), ErrType, "instruction: unexpected type: 42"},
		{"odd experimenter instruction", NewFlowMod(FlowAdd, 0, 1, Match{}, Instruction{Type: InstructionExperimenter, Data: long[:3]}), ErrLength, "multiple of 8"},
		{"wrong action in a bucket", &GroupMod{Buckets: []Bucket{NewBucket(Action{Type: 99})}}, ErrType, "99"},
		{"wrong action in an extended bucket", &ExtGroupMod{Buckets: []ExtBucket{{1, NewBucket(Action{Type: 99})}}}, ErrType, "99"},
		{"wrong message in a bundle", &BundleAdd{Bundle: 7, Message: add(Action{Type: 99})}, ErrType, "bundle 7"},
		{"no message in a bundle", &BundleAdd{Bundle: 7}, ErrValue, "no message"},
		{"no body", &MultipartRequest{}, ErrValue, "no body"},
		{"wrong action in a reply", &MultipartReply{Body: &GroupDescReply{{Buckets: []Bucket{NewBucket(Action{Type: 99})}}}}, ErrType, "99"},
		{"long data", &EchoRequest{Data: long}, ErrTooLong, "ECHO_REQUEST: message too long: 65543 bytes, at most 65535"},
		{"long packet-out", NewPacketOut(1, nil, long), ErrTooLong, "PACKET_OUT"},
		{"long list of actions", NewPacketOut(1, make([]Action, 5000), nil), ErrTooLong, "PACKET_OUT"},
		{"long bundle", &BundleAdd{Message: &EchoRequest{Data: long[:MaxMessage-8]}}, ErrTooLong, "EXPERIMENTER"},
		{"long table features", &MultipartReply{Body: &TableFeaturesReply{{Features: []TableFeature{{Type: TableExperimenter, Raw: long}}}}}, ErrTooLong, "MULTIPART_REPLY"},
	} {
		b, err := c.msg.AppendTo([]byte("before"), 1)
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if string(b) != "before" {
			t.Errorf("%s: %d bytes are left in the buffer", c.name, len(b)-6)
		}
	}
}

func TestHelloSpeaks(t *testing.T) {
	for _, c := range []struct {
		hello Hello
		want  bool
	}{
		{Hello{Version: 4}, true},
		{Hello{Version: 6}, true},
		{Hello{Version: 1}, false},
		{Hello{Version: 6, Versions: 1 << 4}, true},
		{Hello{Version: 6, Versions: 1<<1 | 1<<6}, false},
	} {
		if got := c.hello.Speaks(Version); got != c.want {
			t.Errorf("%v speaks 1.3: %v, want %v", &c.hello, got, c.want)
		}
	}
}

// TestDecodersOfOtherTypes gives every decoder a message of every other type:
// it must refuse, and not misread.
func TestDecodersOfOtherTypes(t *testing.T) {
	for _, s := range samples() {
		b := mustAppend(s.msg)
		for mt := range MsgType(NumTypes) {
			m := messages[mt].make()
			if err := m.Decode(b); mt != s.msg.MsgType() && err == nil {
				t.Errorf("%v takes %s for its own", mt, s.name)
			}
		}
	}
}

// TestDecodersOfEveryPrefix cuts every sample at every byte: there is always an
// error, since the header says how long the message is.
func TestDecodersOfEveryPrefix(t *testing.T) {
	for _, s := range samples() {
		b := mustAppend(s.msg)
		for n := range b {
			if _, m, err := Decode(b[:n:n]); err == nil {
				t.Errorf("%s cut at %d is taken for %v", s.name, n, m)
			}
			if n >= headerSize {
				survives(t, fit(b[:n:n], s.msg.MsgType()))
			}
		}
	}
}

func TestPacketInDoesNotAllocate(t *testing.T) {
	b := benchPacketIn()
	var in PacketIn
	out := NewPacketOut(1, []Action{Output(2)}, in.Data)
	buf := make([]byte, 0, 512)
	allocs := testing.AllocsPerRun(100, func() {
		if err := in.Decode(b); err != nil {
			t.Fatal(err)
		}
		out.Data = in.Data
		var err error
		if buf, err = out.AppendTo(buf[:0], 1); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("a packet-in and its packet-out allocate %v times, want 0", allocs)
	}
}

func TestPortUp(t *testing.T) {
	for _, c := range []struct {
		port Port
		want bool
	}{{Port{}, true}, {Port{Config: PortConfigDown}, false}, {Port{State: PortStateLinkDown}, false}, {Port{State: PortStateLive}, true}} {
		if got := c.port.Up(); got != c.want {
			t.Errorf("%v is up: %v, want %v", c.port, got, c.want)
		}
	}
}
