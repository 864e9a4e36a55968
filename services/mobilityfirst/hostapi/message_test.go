package hostapi

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Whatever is written is read as it was.
func TestMessages(t *testing.T) {
	name := rapid.Custom(func(t *rapid.T) frame.GUID { return frame.GUID(rapid.SliceOfN(rapid.Byte(), 20, 20).Draw(t, "name")) })
	rapid.Check(t, func(t *rapid.T) {
		m := Message{Kind: Kind(rapid.Uint8Range(1, uint8(Failed)).Draw(t, "kind"))}
		number, reason := rapid.Uint32().Draw(t, "number"), rapid.StringN(0, -1, MaxReason).Draw(t, "reason")
		switch m.Kind {
		case Attach:
			m.Seed = [SeedSize]byte(rapid.SliceOfN(rapid.Byte(), SeedSize, SeedSize).Draw(t, "seed"))
		case Send, ChunkCame:
			m.Number, m.Name, m.Service = number, name.Draw(t, "name"), frame.Service(rapid.Uint16().Draw(t, "service"))
			m.Payload = rapid.SliceOf(rapid.Byte()).Draw(t, "payload")
			if m.Kind == ChunkCame {
				m.Place = Place(rapid.Uint64().Draw(t, "place"))
			}
		case Take:
			m.Number = number
		case Ping:
			m.Number, m.Name, m.Within = number, name.Draw(t, "name"), time.Duration(rapid.Uint32().Draw(t, "ms"))*time.Millisecond
		case Attached:
			m.Name = name.Draw(t, "name")
		case Sent:
			m.Number, m.Reason = number, reason
		case Pong:
			m.Number, m.Within, m.Reason = number, time.Duration(rapid.Uint64().Draw(t, "ns")), reason
		case Failed:
			m.Reason = reason
		}
		one := append(m.AppendHead(nil), m.Payload...)
		r := bufio.NewReader(bytes.NewReader(slices.Concat(one, one)))
		got, err := Read(r, MaxMessage)
		next, nextErr := Read(r, MaxMessage)
		if diff := cmp.Diff([]Message{m, m}, []Message{got, next}, cmpopts.EquateEmpty()); err != nil || nextErr != nil || diff != "" {
			t.Fatalf("%v, %v\n%s", err, nextErr, diff)
		}
		if _, err := Read(r, MaxMessage); err != io.EOF {
			t.Fatalf("at the end: %v", err)
		}
	})
}

// What is no message is refused, and a length that nobody sends costs no memory.
func TestNoMessages(t *testing.T) {
	for name, b := range map[string][]byte{
		"nothing in it":  {0, 0, 0, 0},
		"unknown":        {0, 0, 0, 1, 77},
		"too short":      {0, 0, 0, 2, byte(Take), 1},
		"too long":       {0, 0, 0, 6, byte(Take), 1, 2, 3, 4, 5},
		"larger than is": {0xff, 0xff, 0xff, 0xff, byte(Send)},
		"cut off":        {0, 0, 0, 6, byte(Take)},
	} {
		if _, err := Read(bufio.NewReader(bytes.NewReader(b)), MaxMessage); !errors.Is(err, ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Read(bufio.NewReader(bytes.NewReader(nil)), MaxMessage); err != io.EOF {
		t.Error(err)
	}
}

// FuzzParse: what is read is written as it was read.
func FuzzParse(f *testing.F) {
	for _, m := range []Message{{Kind: Attach}, {Kind: Send, Payload: []byte{1}}, {Kind: ChunkCame, Place: 5, Payload: []byte{1}}, {Kind: Ping}, {Kind: Pong, Reason: "no"}, {Kind: Failed, Reason: "no"}} {
		f.Add(append(m.AppendHead(nil), m.Payload...)[4:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			return
		}
		if again := append(m.AppendHead(nil), m.Payload...); !bytes.Equal(again[4:], b) {
			t.Fatalf("%x is read as %+v, and written as %x", b, m, again[4:])
		}
	})
}
