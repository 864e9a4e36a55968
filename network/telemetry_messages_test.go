package network

import (
	"bytes"
	"maps"
	"testing"

	"github.com/sluice-net/sluice/openflow"
)

func TestMessagesAreCounted(t *testing.T) {
	var b []byte
	for _, m := range []openflow.Message{&openflow.EchoRequest{Data: []byte("payload")}, &openflow.BarrierRequest{}, &openflow.EchoRequest{}} {
		var err error
		if b, err = m.AppendTo(b, 1); err != nil {
			t.Fatal(err)
		}
	}
	var c messageCounts
	c.addAll(b)
	c.addAll([]byte{4, byte(openflow.TypeHello), 0, 0, 0, 0, 0, 0, 4}) // no length, and no whole header
	c.addAll([]byte{4, openflow.NumTypes, 0, 8, 0, 0, 0, 0})
	want := map[MessageKind]uint64{{openflow.TypeHello, ""}: 1, {openflow.TypeEchoRequest, ""}: 2, {openflow.TypeBarrierRequest, ""}: 1}
	if got := c.read(); !maps.Equal(maps.Collect(got.All()), want) || got.Of(openflow.TypeEchoRequest) != 2 {
		t.Errorf("%v, want %v", maps.Collect(got.All()), want)
	}
}

// TestKindsOfMessages checks that multipart messages are counted by the type of their body, and
// LLDP packets apart from others.
func TestKindsOfMessages(t *testing.T) {
	lldp, tcp := append(make([]byte, 12), 0x88, 0xcc, 1, 2), append(make([]byte, 12), 0x08, 0x00, 0x45)
	for _, c := range []struct {
		m    openflow.Message
		want MessageKind
	}{
		{&openflow.PacketIn{InPort: 7, Data: lldp}, MessageKind{openflow.TypePacketIn, "lldp"}},
		{&openflow.PacketIn{Fields: openflow.OXMs{0x80, 0, 0, 4, 0, 0, 0, 7, 0x80, 0, 0x14, 1, 6}, Data: tcp}, MessageKind{openflow.TypePacketIn, ""}},
		{&openflow.PacketIn{InPort: 7}, MessageKind{openflow.TypePacketIn, ""}},
		{&openflow.PacketOut{BufferID: openflow.NoBuffer, Actions: []openflow.Action{openflow.Output(1), openflow.Output(2)}, Data: lldp}, MessageKind{openflow.TypePacketOut, "lldp"}},
		{&openflow.PacketOut{BufferID: openflow.NoBuffer, Data: tcp}, MessageKind{openflow.TypePacketOut, ""}},
		{&openflow.MultipartRequest{Body: &openflow.FlowStatsRequest{}}, MessageKind{openflow.TypeMultipartRequest, "flow"}},
		{&openflow.MultipartReply{Body: &openflow.PortStatsReply{}}, MessageKind{openflow.TypeMultipartReply, "port"}},
		{&openflow.MultipartReply{Body: &openflow.PortDescReply{}}, MessageKind{openflow.TypeMultipartReply, "port_desc"}},
		{&openflow.MultipartRequest{Body: &openflow.ExperimenterMultipart{}}, MessageKind{openflow.TypeMultipartRequest, "experimenter"}},
	} {
		b, err := c.m.AppendTo(nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		var n messageCounts
		n.addAll(append(b, b...))
		if got := n.read(); !maps.Equal(maps.Collect(got.All()), map[MessageKind]uint64{c.want: 2}) {
			t.Errorf("%v: %v, want %v", c.m, maps.Collect(got.All()), c.want)
		}
	}
	var n messageCounts
	for _, kind := range []openflow.MsgType{openflow.TypePacketIn, openflow.TypePacketOut, openflow.TypeMultipartReply} { // too short for what they say
		n.addAll([]byte{4, byte(kind), 0, 8, 0, 0, 0, 0})
		n.addAll(append([]byte{4, byte(kind), 0, 28, 0, 0, 0, 0}, bytes.Repeat([]byte{0xff}, 20)...))
	}
}
