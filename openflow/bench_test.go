package openflow

import (
	"bytes"
	"testing"
)

// benchPacketIn is what a switch sends for the first packet of a TCP connection.
func benchPacketIn() []byte {
	return mustAppend(&PacketIn{BufferID: NoBuffer, TotalLen: 74, Table: 0, InPort: 3, Data: make([]byte, 74)})
}

func benchFlowMod() *FlowMod {
	return NewFlowMod(FlowAdd, 0, 1000,
		MustMatch(InPort(1), EthType(0x800), IPProto(6), IPSrc(v4), IPDst(v4), TCPSrc(40000), TCPDst(80)),
		ApplyActions(SetField(EthDst(mac1)), SetField(IPDst(v4)), SetField(TCPDst(9877)), Output(2)))
}

func BenchmarkDecodePacketIn(b *testing.B) {
	msg := benchPacketIn()
	var m PacketIn
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Decode(msg); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeFlowRemoved(b *testing.B) {
	f := benchFlowMod()
	msg := mustAppend(&FlowRemoved{Match: f.Match})
	b.ReportAllocs()
	for b.Loop() {
		var m FlowRemoved
		if err := m.Decode(msg); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeFlowMod(b *testing.B) {
	msg := mustAppend(benchFlowMod())
	b.ReportAllocs()
	for b.Loop() {
		var m FlowMod
		if err := m.Decode(msg); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNewMatch(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NewMatch(InPort(1), EthType(0x800), IPProto(6), IPSrc(v4), IPDst(v4), TCPSrc(40000), TCPDst(80)); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkAppend(b *testing.B, m Message) {
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if buf, err = m.AppendTo(buf[:0], 1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendFlowMod(b *testing.B) { benchmarkAppend(b, benchFlowMod()) }
func BenchmarkAppendPacketIn(b *testing.B) {
	benchmarkAppend(b, &PacketIn{BufferID: NoBuffer, TotalLen: 74, InPort: 3, Data: make([]byte, 74)})
}

func BenchmarkAppendPacketOut(b *testing.B) {
	benchmarkAppend(b, NewPacketOut(1, []Action{Output(2)}, make([]byte, 74)))
}

// BenchmarkReader cuts a stream of packet-ins and decodes them.
func BenchmarkReader(b *testing.B) {
	one := benchPacketIn()
	stream := bytes.Repeat(one, 512)
	src := bytes.NewReader(nil)
	r := NewReader(src)
	var m PacketIn
	b.ReportAllocs()
	b.SetBytes(int64(len(one)))
	for b.Loop() {
		if !r.Buffered() && src.Len() == 0 {
			src.Reset(stream)
		}
		msg, err := r.Next()
		if err != nil {
			b.Fatal(err)
		}
		if err := m.Decode(msg); err != nil {
			b.Fatal(err)
		}
	}
}
