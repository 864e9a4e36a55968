package media

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/pion/rtp"
	"pgregory.net/rapid"
)

// datagram returns an RTP packet.
func datagram(t testing.TB, kind uint8, sequence uint16, timestamp uint32, payload ...byte) []byte {
	t.Helper()
	p := rtp.Packet{Header: rtp.Header{Version: 2, PayloadType: kind, SequenceNumber: sequence, Timestamp: timestamp, SSRC: 7}, Payload: payload}
	b, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParse(t *testing.T) {
	const header = "0001000000020000000a"
	for _, c := range []struct {
		name, hex string
		want      Packet
		is        string
	}{
		{"video", "8060" + header + "41aa", Packet{Type: 96, Sequence: 1, Timestamp: 2, SSRC: 10, Payload: []byte{0x41, 0xaa}}, "video"},
		{"video, the last of a picture", "80e0" + header + "41", Packet{Type: 96, Marker: true, Sequence: 1, Timestamp: 2, SSRC: 10, Payload: []byte{0x41}}, "video"},
		{"sound", "806f" + header + "fc", Packet{Type: 111, Sequence: 1, Timestamp: 2, SSRC: 10, Payload: []byte{0xfc}}, "audio"},
		{"neither", "8000" + header + "00", Packet{Sequence: 1, Timestamp: 2, SSRC: 10, Payload: []byte{0}}, ""},
		{"nothing but padding", "a060" + header + "0002", Packet{Type: 96, Sequence: 1, Timestamp: 2, SSRC: 10, Payload: []byte{}}, "video"},
		{"one source besides", "8160" + header + "00000009" + "41", Packet{Type: 96, Sequence: 1, Timestamp: 2, SSRC: 10, Payload: []byte{0x41}}, "video"},
		{"an extension", "9060" + header + "bede000110ff0000" + "41", Packet{Type: 96, Sequence: 1, Timestamp: 2, SSRC: 10, Payload: []byte{0x41}}, "video"},
		{"a sender report", "80c80006" + "0000000a" + strings.Repeat("00", 20), Packet{Control: true, SSRC: 10}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := hex.DecodeString(c.hex)
			if err != nil {
				t.Fatal(err)
			}
			p, err := Parse(b)
			if err != nil {
				t.Fatal(err)
			}
			is := map[[2]bool]string{{true, false}: "video", {false, true}: "audio"}[[2]bool{p.Video(), p.Audio()}]
			if !bytes.Equal(p.Payload, c.want.Payload) || is != c.is {
				t.Errorf("%+v is %q, want %+v and %q", p, is, c.want, c.is)
			}
			if p.Payload, c.want.Payload = nil, nil; p.Control != c.want.Control || p.Type != c.want.Type || p.Marker != c.want.Marker ||
				p.Sequence != c.want.Sequence || p.Timestamp != c.want.Timestamp || p.SSRC != c.want.SSRC {
				t.Errorf("%+v, want %+v", p, c.want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	const header = "0001000000020000000a"
	for _, c := range []struct{ name, hex, want string }{
		{"nothing", "", "of 0 bytes"},
		{"one byte", "80", "of 1 bytes"},
		{"half a header", "8060" + header[:8], "of 6 bytes"},
		{"version 1", "4060" + header + "41", "version 1"},
		{"sources beyond its end", "8f60" + header + "41", "of 13 bytes"},
		{"an extension beyond its end", "9060" + header + "bedeffff", "of 16 bytes"},
		{"more padding than bytes", "a060" + header + "41ff", "of 14 bytes"},
		{"half a report", "80c80006", "RTCP"},
		{"a report of version 0", "00c80001" + "0000000a", "RTCP"},
		{"too long", "8060" + header + strings.Repeat("41", MaxDatagram), "more than 1472"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := hex.DecodeString(c.hex)
			if err != nil {
				t.Fatal(err)
			}
			if p, err := Parse(b); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v, %v; want an error with %q", p, err, c.want)
			}
		})
	}
	if _, err := Parse(make([]byte, MaxDatagram+1)); !errors.Is(err, ErrTooLong) {
		t.Errorf("%v, want ErrTooLong", err)
	}
}

func TestKeyFrame(t *testing.T) {
	for _, c := range []struct {
		name    string
		payload []byte
		want    bool
	}{
		{"nothing", nil, false},
		{"a slice", []byte{0x41, 1}, false},
		{"a slice of a key frame", []byte{0x65, 1}, true},
		{"sequence parameters", []byte{0x67, 1}, true},
		{"picture parameters", []byte{0x68, 1}, false},
		{"supplemental information", []byte{0x06, 1}, false},
		{"an aggregate of parameters", []byte{0x78, 0, 2, 0x67, 1, 0, 2, 0x68, 1}, true},
		{"an aggregate with a key frame at its end", []byte{0x78, 0, 2, 0x06, 1, 0, 2, 0x65, 1}, true},
		{"an aggregate of slices", []byte{0x78, 0, 2, 0x41, 1, 0, 2, 0x41, 1}, false},
		{"an aggregate with a unit beyond its end", []byte{0x78, 0, 9, 0x67, 1}, false},
		{"an aggregate with a unit of nothing", []byte{0x78, 0, 0, 0, 2, 0x67, 1}, false},
		{"an aggregate that is cut", []byte{0x78, 0}, false},
		{"the first fragment of a key frame", []byte{0x7c, 0x85, 1}, true},
		{"a later fragment of one", []byte{0x7c, 0x05, 1}, false},
		{"the last fragment of one", []byte{0x7c, 0x45, 1}, false},
		{"the first fragment of a slice", []byte{0x7c, 0x81, 1}, false},
		{"a fragment that is cut", []byte{0x7c}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Parse(datagram(t, VideoType, 1, 1, c.payload...))
			if err != nil || p.KeyFrame() != c.want {
				t.Errorf("%v, %v", p.KeyFrame(), err)
			}
			if p, err = Parse(datagram(t, AudioType, 1, 1, c.payload...)); err != nil || p.KeyFrame() {
				t.Errorf("of sound: %v, %v", p.KeyFrame(), err)
			}
		})
	}
}

// TestParseReadsWhatWasWritten checks that Parse returns the fields of a packet.
func TestParseReadsWhatWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := rtp.Header{
			Version: 2, Marker: rapid.Bool().Draw(t, "marker"), PayloadType: rapid.SampledFrom([]uint8{0, 63, VideoType, AudioType, 127}).Draw(t, "type"),
			SequenceNumber: rapid.Uint16().Draw(t, "sequence"), Timestamp: rapid.Uint32().Draw(t, "timestamp"), SSRC: rapid.Uint32().Draw(t, "source"),
			CSRC: rapid.SliceOfN(rapid.Uint32(), 0, 15).Draw(t, "sources"),
		}
		payload := rapid.SliceOfN(rapid.Byte(), 0, 1200).Draw(t, "payload")
		b, err := (&rtp.Packet{Header: h, Payload: payload}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		p, err := Parse(b)
		if err != nil || p.Control || p.Type != h.PayloadType || p.Marker != h.Marker || p.Sequence != h.SequenceNumber ||
			p.Timestamp != h.Timestamp || p.SSRC != h.SSRC || !bytes.Equal(p.Payload, payload) {
			t.Fatalf("%+v, %v of %+v", p, err, h)
		}
	})
}

// FuzzParse checks that any datagram gives an error, or a value that survives every accessor.
func FuzzParse(f *testing.F) {
	for _, payload := range [][]byte{{0x65, 1}, {0x78, 0, 2, 0x67, 1, 0, 2, 0x68, 1}, {0x7c, 0x85, 1}, {0x78, 0xff, 0xff}, {}} {
		f.Add(datagram(f, VideoType, 1, 1, payload...))
		f.Add(datagram(f, AudioType, 1, 1, payload...))
	}
	f.Add([]byte{0x80, 0xc8, 0, 6, 0, 0, 0, 10})
	f.Add([]byte{0x9f, 0x60, 0, 1, 0, 0, 0, 2, 0, 0, 0, 10, 0xbe, 0xde})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Parse(b)
		if err != nil {
			if p.Payload != nil || err.Error() == "" {
				t.Errorf("%+v beside the error %q", p, err)
			}
			return
		}
		if p.Video() && p.Audio() || p.Control && (p.Video() || p.Audio() || len(p.Payload) > 0) || (p.KeyFrame() || p.BSlice()) && !p.Video() || len(p.Payload) > len(b) {
			t.Errorf("%+v cannot be", p)
		}
	})
}

// TestBSlice checks that slices of B-frames are recognised in each kind of packet.
func TestBSlice(t *testing.T) {
	for _, c := range []struct {
		name    string
		payload []byte
		want    bool
	}{
		// The bits after the header are first_mb_in_slice and slice_type as Exp-Golomb codes.
		{"P (0)", []byte{0x41, 0b1_1_000000}, false},
		{"B (1)", []byte{0x01, 0b1_010_0000}, true},
		{"I (2)", []byte{0x41, 0b1_011_0000}, false},
		{"P only (5)", []byte{0x41, 0b1_00110_00}, false},
		{"B only (6)", []byte{0x01, 0b1_00111_00}, true},
		{"I only (7)", []byte{0x41, 0b1_0001000}, false},
		{"B, of a later macroblock", []byte{0x01, 0b0001001_0, 0b10_000000}, true},
		{"a key frame's slice", []byte{0x65, 0b1_010_0000}, false},
		{"parameters", []byte{0x67, 0b1_010_0000}, false},
		{"first fragment", []byte{0x5c, 0x81, 0b1_010_0000}, true},
		{"later fragment", []byte{0x5c, 0x01, 0b1_010_0000}, false},
		{"first fragment of a key frame", []byte{0x5c, 0x85, 0b1_010_0000}, false},
		{"aggregate", []byte{nalAggregate, 0, 2, 0x41, 0b1_1_000000, 0, 2, 0x01, 0b1_010_0000}, true},
		{"aggregate without", []byte{nalAggregate, 0, 2, 0x41, 0b1_1_000000}, false},
		{"aggregate that is cut off", []byte{nalAggregate, 0, 9, 0x01, 0b1_010_0000}, false},
		{"empty", nil, false},
		{"header only", []byte{0x01}, false},
		{"fragment header only", []byte{0x5c, 0x81}, false},
		{"zeros", []byte{0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, false},
		{"cut off in the slice type", []byte{0x01, 0b0001001_0}, false},
	} {
		p := Packet{Type: VideoType, Payload: c.payload}
		if got := p.BSlice(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if (Packet{Type: AudioType, Payload: []byte{0x01, 0b1_010_0000}}).BSlice() {
		t.Error("sound is taken for a B-frame")
	}
}
