package openflow

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"
)

// seed gives the fuzzer every message of the golden files whose name has one of
// the prefixes; no prefix means all.
func seed(f *testing.F, prefixes ...string) {
	f.Helper()
	for _, file := range []string{"testdata/messages.txt", "testdata/refusals.txt", recorded} {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for block := range strings.SplitSeq(strings.TrimSpace(string(raw)), "\n\n") {
			lines := strings.SplitN(block, "\n", 3)
			b, err := hex.DecodeString(strings.ReplaceAll(lines[1], " ", ""))
			if err != nil {
				f.Fatal(err)
			}
			wanted := len(prefixes) == 0
			for _, p := range prefixes {
				wanted = wanted || strings.HasPrefix(lines[0], "# "+p)
			}
			if wanted {
				f.Add(b)
			}
		}
	}
}

// survives is the rule for every decoder: an error, or a value that can be
// printed and encoded, and is then decoded to what prints and encodes the same.
func survives(t *testing.T, b []byte) {
	t.Helper()
	h, m, err := Decode(b)
	if err != nil {
		_ = err.Error() // the text of an error must not fail either
		return
	}
	text := m.String()
	again, err := m.AppendTo(nil, h.XID)
	if errors.Is(err, ErrTooLong) {
		return // a bucket without its weight is sent with it
	}
	if err != nil {
		t.Fatalf("decoded but not encoded: %s: %v", text, err)
	}
	_, m2, err := Decode(again)
	if err != nil {
		t.Fatalf("encoded but not decoded: %s: %v", text, err)
	}
	if text2 := m2.String(); text2 != text {
		t.Fatalf("prints differently the second time:\n%s\n%s", text, text2)
	}
	third, err := m2.AppendTo(nil, h.XID)
	if err != nil || !bytes.Equal(third, again) {
		t.Fatalf("encodes differently the second time (%v):\n%x\n%x", err, again, third)
	}
}

// fit makes b a message of type mt: most mutations would otherwise die at the
// header, and the decoders behind it would not be tried.
func fit(b []byte, mt MsgType) []byte {
	if len(b) < headerSize || len(b) > MaxMessage {
		return b
	}
	b = bytes.Clone(b)
	b[0], b[1] = Version, byte(mt)
	be.PutUint16(b[2:], uint16(len(b)))
	return b
}

func fuzzType(f *testing.F, mt MsgType, prefixes ...string) {
	seed(f, prefixes...)
	f.Fuzz(func(t *testing.T, b []byte) { survives(t, fit(b, mt)) })
}

// FuzzDecode tries every decoder, chosen by the type in the header.
func FuzzDecode(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		survives(t, b)
		if len(b) > 1 {
			survives(t, fit(b, MsgType(b[1]%NumTypes)))
		}
	})
}

func FuzzHello(f *testing.F)       { fuzzType(f, TypeHello, "hello") }
func FuzzError(f *testing.F)       { fuzzType(f, TypeError, "error") }
func FuzzPacketIn(f *testing.F)    { fuzzType(f, TypePacketIn, "packet-in") }
func FuzzPacketOut(f *testing.F)   { fuzzType(f, TypePacketOut, "packet-out") }
func FuzzFlowRemoved(f *testing.F) { fuzzType(f, TypeFlowRemoved, "flow-removed") }
func FuzzFlowMod(f *testing.F)     { fuzzType(f, TypeFlowMod, "flow", "match", "action") }
func FuzzGroupMod(f *testing.F)    { fuzzType(f, TypeGroupMod, "group") }
func FuzzMeterMod(f *testing.F)    { fuzzType(f, TypeMeterMod, "meter") }
func FuzzPortStatus(f *testing.F)  { fuzzType(f, TypePortStatus, "port") }
func FuzzQueueConfig(f *testing.F) { fuzzType(f, TypeQueueGetReply, "queue") }

func FuzzMultipartRequest(f *testing.F) {
	fuzzType(f, TypeMultipartRequest, "request", "multipart", "reply-table-features")
}

func FuzzMultipartReply(f *testing.F) { fuzzType(f, TypeMultipartReply, "reply", "multipart") }

func FuzzExperimenter(f *testing.F) {
	fuzzType(f, TypeExperimenter, "experimenter", "bundle", "insert", "remove", "extended")
}

// FuzzReader cuts any stream, read in any pieces: the messages and what is left
// make up the stream, and no message is shorter than a header.
func FuzzReader(f *testing.F) {
	f.Add(mustAppend(NewHello()), uint8(3))
	f.Add([]byte{4, 0, 0, 0, 0, 0, 0, 0}, uint8(1))
	f.Add(append(mustAppend(&BarrierReply{}), mustAppend(&EchoReply{Data: make([]byte, 300)})...), uint8(200))
	f.Fuzz(func(t *testing.T, stream []byte, piece uint8) {
		r := NewReader(&pieces{stream, int(piece) + 1})
		var cut []byte
		for {
			m, err := r.Next()
			if err != nil {
				break
			}
			if len(m) < headerSize {
				t.Fatalf("message of %d bytes", len(m))
			}
			cut = append(cut, m...)
		}
		if !bytes.HasPrefix(stream, cut) {
			t.Fatalf("read %x of %x", cut, stream)
		}
	})
}

// FuzzIdentifiers checks that what is parsed prints as something that is parsed
// to the same.
func FuzzIdentifiers(f *testing.F) {
	for _, s := range []string{"00000000000000a1", "00:00:00:00:00:00:00:a1", "0x00000000000000a1", "02:00:00:00:00:01", "02-00-00-00-00-01", "eth_dst"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := ParseDatapathID(s); err == nil {
			if again, err := ParseDatapathID(d.String()); err != nil || again != d {
				t.Fatalf("%q is %v, then %v (%v)", s, d, again, err)
			}
		}
		if m, err := ParseMAC(s); err == nil {
			if again, err := ParseMAC(m.String()); err != nil || again != m {
				t.Fatalf("%q is %v, then %v (%v)", s, m, again, err)
			}
		}
		if field, err := ParseField(s); err == nil && field.Name() != s {
			t.Fatalf("%q is %v", s, field)
		}
	})
}
