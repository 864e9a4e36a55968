package openflow

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// genMessage returns any message that this package can send.
func genMessage(t *rapid.T) Message {
	kinds := []func(*rapid.T) Message{
		genSession, genPacket, genFlow, genGroupOrMeter, genPortMessage,
		func(t *rapid.T) Message { return &MultipartRequest{Body: genRequest(t)} },
		func(t *rapid.T) Message {
			return &MultipartReply{More: rapid.Bool().Draw(t, "more"), Body: genReply(t)}
		},
		genExperimenter,
	}
	return rapid.SampledFrom(kinds).Draw(t, "kind")(t)
}

func genSession(t *rapid.T) Message {
	return rapid.SampledFrom([]func() Message{
		func() Message { return &Hello{Version: u8.Draw(t, "version") | 1, Versions: u32.Draw(t, "versions")} },
		func() Message { return &EchoRequest{Data: genBytes(64).Draw(t, "data")} },
		func() Message { return &EchoReply{Data: genBytes(64).Draw(t, "data")} },
		func() Message { return &FeaturesRequest{} },
		func() Message { return rapid.Ptr(rapid.Make[FeaturesReply](), false).Draw(t, "features") },
		func() Message { return &GetConfigRequest{} },
		func() Message { return rapid.Ptr(rapid.Make[GetConfigReply](), false).Draw(t, "config") },
		func() Message { return rapid.Ptr(rapid.Make[SetConfig](), false).Draw(t, "config") },
		func() Message { return rapid.Ptr(rapid.Make[RoleRequest](), false).Draw(t, "role") },
		func() Message { return rapid.Ptr(rapid.Make[RoleReply](), false).Draw(t, "role") },
		func() Message { return rapid.Ptr(rapid.Make[SetAsync](), false).Draw(t, "async") },
		func() Message { return rapid.Ptr(rapid.Make[GetAsyncReply](), false).Draw(t, "async") },
		func() Message { return rapid.Ptr(rapid.Make[TableMod](), false).Draw(t, "table") },
		func() Message { return &GetAsyncRequest{} },
		func() Message { return &BarrierRequest{} },
		func() Message { return &BarrierReply{} },
		func() Message {
			e := &Error{Code: ErrorCode(u32.Draw(t, "code")), Data: genBytes(80).Draw(t, "data")}
			if e.Code.Type() == ErrorTypeExperimenter {
				e.Experimenter = u32.Draw(t, "experimenter")
			}
			return e
		},
	}).Draw(t, "session")()
}

func genPacket(t *rapid.T) Message {
	data := genBytes(100).Draw(t, "data")
	if rapid.Bool().Draw(t, "out") {
		return &PacketOut{u32.Draw(t, "buffer"), u32.Draw(t, "port"), genActions().Draw(t, "actions"), data}
	}
	port := u32.Draw(t, "port")
	return &PacketIn{
		BufferID: u32.Draw(t, "buffer"), TotalLen: u16.Draw(t, "len"), Reason: u8.Draw(t, "reason"), Table: u8.Draw(t, "table"),
		Cookie: u64.Draw(t, "cookie"), InPort: port, Fields: OXMs(MustMatch(InPort(port), Metadata(u64.Draw(t, "metadata"))).wire), Data: data,
	}
}

func genFlow(t *rapid.T) Message {
	match := genMatch().Draw(t, "match")
	if rapid.Bool().Draw(t, "removed") {
		return &FlowRemoved{
			Cookie: u64.Draw(t, "cookie"), Priority: u16.Draw(t, "priority"), Reason: u8.Draw(t, "reason"), Table: u8.Draw(t, "table"),
			Duration: genDuration().Draw(t, "duration"), IdleTimeout: u16.Draw(t, "idle"), HardTimeout: u16.Draw(t, "hard"),
			Packets: u64.Draw(t, "packets"), Bytes: u64.Draw(t, "bytes"), Match: match,
		}
	}
	return &FlowMod{
		Cookie: u64.Draw(t, "cookie"), CookieMask: u64.Draw(t, "mask"), Table: u8.Draw(t, "table"), Command: u8.Draw(t, "command"),
		IdleTimeout: u16.Draw(t, "idle"), HardTimeout: u16.Draw(t, "hard"), Priority: u16.Draw(t, "priority"),
		BufferID: u32.Draw(t, "buffer"), OutPort: u32.Draw(t, "port"), OutGroup: u32.Draw(t, "group"), Flags: u16.Draw(t, "flags"),
		Match: match, Instructions: genList(genInstruction(), 3).Draw(t, "instructions"),
	}
}

func genGroupOrMeter(t *rapid.T) Message {
	if rapid.Bool().Draw(t, "meter") {
		return &MeterMod{u16.Draw(t, "command"), u16.Draw(t, "flags"), u32.Draw(t, "meter"), genList(genBand(), 3).Draw(t, "bands")}
	}
	return &GroupMod{u16.Draw(t, "command"), GroupType(u8.Draw(t, "type")), u32.Draw(t, "group"), genList(genBucket(), 3).Draw(t, "buckets")}
}

func genPortMessage(t *rapid.T) Message {
	return rapid.SampledFrom([]func() Message{
		func() Message { return &PortStatus{u8.Draw(t, "reason"), genPort().Draw(t, "port")} },
		func() Message { return rapid.Ptr(rapid.Make[PortMod](), false).Draw(t, "mod") },
		func() Message { return &QueueConfigRequest{u32.Draw(t, "port")} },
		func() Message {
			queue := rapid.Custom(func(t *rapid.T) Queue {
				return Queue{ID: u32.Draw(t, "id"), Port: u32.Draw(t, "port"), MinRate: u16.Draw(t, "min"), MaxRate: u16.Draw(t, "max")}
			})
			return &QueueConfigReply{u32.Draw(t, "port"), genList(queue, 3).Draw(t, "queues")}
		},
	}).Draw(t, "port")()
}

func genExperimenter(t *rapid.T) Message {
	bundle, flags := u32.Draw(t, "bundle"), u16.Draw(t, "flags")
	return rapid.SampledFrom([]func() Message{
		func() Message { return &Experimenter{0x12345678, u32.Draw(t, "type"), genBytes(50).Draw(t, "data")} },
		func() Message { return &BundleControl{bundle, BundleOp(u16.Draw(t, "op")), flags, []byte{}} },
		func() Message { return &BundleAdd{Bundle: bundle, Flags: flags, Message: genFlow(t)} },
		func() Message { return &BundleAdd{Bundle: bundle, Flags: flags, Message: genGroupOrMeter(t)} },
		func() Message {
			buckets := rapid.Custom(func(t *rapid.T) ExtBucket { return ExtBucket{u32.Draw(t, "id"), genBucket().Draw(t, "bucket")} })
			return &ExtGroupMod{
				u16.Draw(t, "command"), GroupType(u8.Draw(t, "type")), u32.Draw(t, "group"), u32.Draw(t, "at"),
				genList(buckets, 3).Draw(t, "buckets"),
				[]byte{},
			}
		},
	}).Draw(t, "experimenter")()
}

// TestEveryMessageComesBack is the round trip: what is encoded is decoded to
// the same value, behind whatever the buffer held before.
func TestEveryMessageComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, xid := genMessage(t), u32.Draw(t, "xid")
		before := genBytes(9).Draw(t, "before")
		b, err := m.AppendTo(before, xid)
		if err != nil {
			t.Fatalf("%v: %v", m, err)
		}
		h, got, err := Decode(b[len(before):])
		if err != nil {
			t.Fatalf("%v: %x: %v", m, b, err)
		}
		if h.XID != xid || h.Type != m.MsgType() || string(b[:len(before)]) != string(before) {
			t.Fatalf("header %+v, want type %v and transaction %d", h, m.MsgType(), xid)
		}
		if !reflect.DeepEqual(got, m) {
			t.Fatalf("got %#v\nwant %#v", got, m)
		}
		if got.String() == "" {
			t.Fatal("it prints as nothing")
		}
	})
}

// TestMatchIsCanonical checks that the order of the fields does not matter and
// that a match is equal to what it becomes on the wire.
func TestMatchIsCanonical(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := genMatch().Draw(t, "match")
		var oxms []OXM
		for o := range m.Fields() {
			oxms = append(oxms, o)
		}
		again, err := NewMatch(rapid.Permutation(oxms).Draw(t, "order")...)
		if err != nil || again != m {
			t.Fatalf("rebuilt from its fields it is %v (%v), was %v", again, err, m)
		}
		if !m.Covers(m) || !(Match{}).Covers(m) {
			t.Fatalf("%v does not cover itself", m)
		}
		for i, o := range oxms {
			if got, ok := m.Get(o.Field); !ok || got != o {
				t.Fatalf("Get(%v) is %v, %v", o.Field, got, ok)
			}
			var rest OXMs
			for j := range oxms {
				if j != i {
					rest = appendOXM(rest, &oxms[j])
				}
			}
			if less, err := rest.Match(); err != nil || !less.Covers(m) || m.Covers(less) {
				t.Fatalf("%v must cover %v and not the reverse (%v)", less, m, err)
			}
		}
	})
}
