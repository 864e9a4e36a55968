package wire

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHeaderGolden(t *testing.T) {
	h := Header{Kind: Data, Length: 0x01020304, Number: 0x05060708090a0b0c}
	want := []byte{1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	h.Length = 0x00020304
	want[4] = 0
	if got := h.AppendTo(nil); !bytes.Equal(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
}

func TestHeaderRefuses(t *testing.T) {
	for name, b := range map[string][]byte{
		"short":                make([]byte, HeaderSize-1),
		"kind 0":               make([]byte, HeaderSize),
		"unknown kind":         Header{Kind: 6}.AppendTo(nil),
		"reserved":             {3, 0, 1, 15: 0},
		"ack with length":      Header{Kind: Ack, Length: 1}.AppendTo(nil),
		"window with flags":    Header{Kind: Window, Flags: FlagFIN}.AppendTo(nil),
		"empty chunk":          Header{Kind: Data}.AppendTo(nil),
		"too large a chunk":    Header{Kind: Data, Length: MaxChunk + 1}.AppendTo(nil),
		"FIN with payload":     Header{Kind: Data, Flags: FlagFIN, Length: 1}.AppendTo(nil),
		"FIN and RST":          Header{Kind: Data, Flags: FlagFIN | FlagRST}.AppendTo(nil),
		"unknown flag":         Header{Kind: Data, Flags: 4, Length: 1}.AppendTo(nil),
		"release with a flag":  Header{Kind: Release, Flags: 1}.AppendTo(nil),
		"reset with a payload": Header{Kind: Reset, Length: 9}.AppendTo(nil),
	} {
		if _, err := ParseHeader(b); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func headers() *rapid.Generator[Header] {
	return rapid.Custom(func(t *rapid.T) Header {
		h := Header{Kind: Kind(rapid.IntRange(1, int(Release)).Draw(t, "kind")), Number: rapid.Uint64().Draw(t, "number")}
		if h.Kind == Data {
			h.Flags = rapid.SampledFrom([]Flags{0, FlagFIN, FlagRST}).Draw(t, "flags")
			if h.Flags == 0 {
				h.Length = rapid.Uint32Range(1, MaxChunk).Draw(t, "length")
			}
		}
		return h
	})
}

func TestHeaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := headers().Draw(t, "header")
		got, err := ParseHeader(h.AppendTo(nil))
		if err != nil || got != h {
			t.Fatalf("%+v became %+v, %v", h, got, err)
		}
	})
}

func TestOpening(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o Opening
		o.Index = rapid.Uint16().Draw(t, "index")
		o.Generation = rapid.Uint32().Draw(t, "generation")
		o.Window = rapid.Uint32().Draw(t, "window")
		copy(o.Session[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "session"))
		copy(o.Nonce[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "nonce"))
		key := rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "key")
		raw := o.AppendTo(nil, key)
		if len(raw) != OpeningSize {
			t.Fatalf("%d bytes", len(raw))
		}
		got, err := ParseOpening(raw)
		if err != nil || got != o {
			t.Fatalf("%+v became %+v, %v", o, got, err)
		}
		if err := VerifyOpening(raw, key); err != nil {
			t.Fatal(err)
		}
		answer := Answer{Nonce: o.Nonce}.AppendTo(nil, raw, key)
		if a, err := ParseAnswer(answer, raw, key); err != nil || a.Nonce != o.Nonce {
			t.Fatalf("%+v %v", a, err)
		}
		// The proof must fail whatever bit changes.
		bad := slices.Clone(raw)
		bad[rapid.IntRange(0, len(raw)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if VerifyOpening(bad, key) == nil {
			t.Fatal("a changed opening passes")
		}
		if _, err := ParseAnswer(answer, bad, key); err == nil {
			t.Fatal("an answer to another opening passes")
		}
		wrong := slices.Clone(answer)
		wrong[rapid.IntRange(6, len(wrong)-1).Draw(t, "byte of answer")] ^= 1
		if a, err := ParseAnswer(wrong, raw, key); err == nil {
			t.Fatalf("a changed answer passes: %+v", a)
		}
		// An opening is not an answer, and its proof does not prove an answer.
		if _, err := ParseAnswer(raw[:AnswerSize], raw, key); err == nil {
			t.Fatal("an opening passes for an answer")
		}
	})
}

func FuzzParseHeader(f *testing.F) {
	f.Add(Header{Kind: Data, Length: 5, Number: 7}.AppendTo(nil))
	f.Add(Header{Kind: Data, Flags: FlagRST}.AppendTo(nil))
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHeader(b)
		if err != nil {
			return
		}
		if !bytes.Equal(h.AppendTo(nil), b[:HeaderSize]) {
			t.Errorf("%+v does not write what it was read from", h)
		}
		_, _ = h.Kind.String(), h.Cost()
	})
}

func FuzzParseOpening(f *testing.F) {
	key := make([]byte, 32)
	f.Add(Opening{Index: 1, Generation: 2}.AppendTo(nil, key))
	f.Add([]byte("SOS\x00\x01\x01"))
	f.Add([]byte("\x16\x03\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := ParseOpening(b)
		if err != nil {
			return
		}
		if VerifyOpening(b, key) == nil && !bytes.Equal(o.AppendTo(nil, key), b) {
			t.Errorf("%+v does not write what it was read from", o)
		}
		if CheckPrefix(b) != nil {
			t.Error("parsed without the prefix")
		}
	})
}

func FuzzParseAnswer(f *testing.F) {
	key := make([]byte, 32)
	opening := Opening{}.AppendTo(nil, key)
	f.Add(Answer{}.AppendTo(nil, opening, key))
	f.Add([]byte("SOS\x00\x01\x02"))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := ParseAnswer(b, opening, key)
		if err == nil && a.Nonce != [16]byte(b[8:24]) {
			t.Errorf("%+v is not what it was read from", a)
		}
	})
}
