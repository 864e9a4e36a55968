package rtmp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/bluenviron/gortmplib/pkg/amf0"
)

// wire is a connection whose client has sent everything already.
type wire struct {
	io.Reader
	out bytes.Buffer
}

func (w *wire) Write(b []byte) (int, error) { return w.out.Write(b) }

// hello is the client's part of the handshake.
var hello = append([]byte{version}, make([]byte, 2*handshakeSize)...)

// command returns a client's command in chunks of 128 bytes.
func command(args ...any) []byte {
	body, err := amf0.Data(args).Marshal()
	if err != nil {
		panic(err)
	}
	return chunks(3, Message{Type: typeCommand, Body: body}, 128)
}

// chunks returns a message in chunks of a size.
func chunks(id byte, m Message, size int) []byte {
	var b []byte
	for i := 0; i == 0 || i < len(m.Body); i += size {
		if i == 0 {
			b = appendMessage(b, id, Message{Type: m.Type, Body: make([]byte, len(m.Body))})[:12]
			b[1], b[2], b[3] = byte(m.Timestamp>>16), byte(m.Timestamp>>8), byte(m.Timestamp)
		} else {
			b = append(b, 0xc0|id)
		}
		b = append(b, m.Body[i:min(i+size, len(m.Body))]...)
	}
	return b
}

var (
	connect = command("connect", 1.0, amf0.Object{{Key: "app", Value: "live/?x=y"}, {Key: "tcUrl", Value: strings.Repeat("x", 300)}})
	publish = command("publish", 3.0, nil, "stage?token=1", "live")
)

// accept returns the connection of a client that has published and sent what follows.
func accept(t *testing.T, rest ...[]byte) (*Conn, *wire) {
	t.Helper()
	all := append([][]byte{hello, connect, command("createStream", 2.0, nil), publish}, rest...)
	w := &wire{Reader: bytes.NewReader(bytes.Join(all, nil))}
	c, err := Accept(w)
	if err != nil {
		t.Fatal(err)
	}
	return c, w
}

// TestPublish checks that a client is accepted with its application and key, and answered.
func TestPublish(t *testing.T) {
	c, w := accept(t)
	if c.App != "live" || c.Key != "stage" {
		t.Errorf("%q, %q", c.App, c.Key)
	}
	if err := c.Refuse("wrong stream key"); err != nil {
		t.Fatal(err)
	}
	out := w.out.String()
	for _, want := range []string{"NetConnection.Connect.Success", "NetStream.Publish.BadName", "wrong stream key"} {
		i := strings.Index(out, want)
		if i < 0 {
			t.Fatalf("no %q in the answers", want)
		}
		out = out[i:]
	}
}

// TestMessages checks that the messages of a stream are read from chunks that are interleaved, of
// changed sizes, and with all kinds of headers.
func TestMessages(t *testing.T) {
	picture, tone := bytes.Repeat([]byte{0x17}, 300), bytes.Repeat([]byte{0xaf}, 200)
	p, s := chunks(6, Message{Type: TypeVideo, Timestamp: 1000, Body: picture}, 128), chunks(4, Message{Type: TypeAudio, Timestamp: 990, Body: tone}, 128)
	later := append([]byte{0x46, 0, 0, 40, 0, 1, 44, TypeVideo}, picture...)                      // format 1
	again := append([]byte{0x86, 0, 0, 40}, picture...)                                           // format 2
	same := append([]byte{0xc6}, picture...)                                                      // format 3
	long := append([]byte{0x06, 255, 255, 255, 0, 0, 1, TypeVideo, 0, 0, 0, 0, 1, 0, 0, 0}, 0x27) // extended timestamp
	wide := append([]byte{0x00, 10, 0, 0, 7, 0, 0, 1, TypeAudio, 0, 0, 0, 0}, 0xaf)               // stream 74
	c, w := accept(t, p[:140], s, p[140:], chunks(2, Message{Type: typeChunkSize, Body: []byte{0, 0, 4, 0}}, 128), later, again, same, long, wide,
		chunks(2, Message{Type: typeWindowSize, Body: []byte{0, 0, 4, 0}}, 128), chunks(4, Message{Type: TypeAudio, Body: make([]byte, 9000)}, 1024), command("deleteStream", 4.0, nil, 1.0))
	if err := c.Permit(); err != nil {
		t.Fatal(err)
	}
	w.out.Reset()
	for i, want := range []struct {
		kind  byte
		stamp uint32
		n     int
	}{
		{TypeAudio, 990, 200},
		{TypeVideo, 1000, 300},
		{TypeVideo, 1040, 300},
		{TypeVideo, 1080, 300},
		{TypeVideo, 1120, 300},
		{TypeVideo, 1 << 24, 1},
		{TypeAudio, 7, 1},
		{TypeAudio, 0, 9000},
	} {
		m, err := c.Read()
		if err != nil || m.Type != want.kind || m.Timestamp != want.stamp || len(m.Body) != want.n {
			t.Fatalf("%d: type %d at %d, %d bytes, %v; want %+v", i, m.Type, m.Timestamp, len(m.Body), err, want)
		}
	}
	if _, err := c.Read(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if w.out.Len() == 0 || w.out.Bytes()[7] != typeAck {
		t.Errorf("no acknowledgement in %x", w.out.Bytes())
	}
}

// TestBounds checks that a client cannot have the server keep more than the bounds.
func TestBounds(t *testing.T) {
	early := append(bytes.Clone(hello), chunks(4, Message{Type: TypeVideo, Body: make([]byte, maxEarly)}, 128)...)
	if _, err := Accept(&wire{Reader: bytes.NewReader(early)}); !errors.Is(err, errTooEarly) {
		t.Errorf("before it publishes: %v, want %v", err, errTooEarly)
	}
	var streams []byte
	for id := range byte(maxChunkStreams + 2) {
		streams = append(streams, chunks(3+id, Message{Type: TypeVideo, Body: make([]byte, 1000)}, 128)[:12+128]...)
	}
	size := chunks(2, Message{Type: typeChunkSize, Body: binary.BigEndian.AppendUint32(nil, 1<<20)}, 128)
	for id := range byte(5) {
		size = append(size, chunks(4+id, Message{Type: TypeVideo, Body: make([]byte, 2<<20)}, 1<<20)[:12+1<<20]...)
	}
	for name, x := range map[string]struct {
		sent []byte
		want error
	}{"chunk streams": {streams, errManyChunks}, "incomplete messages": {size, errTooMuch}} {
		c, _ := accept(t, x.sent)
		if err := c.Permit(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", name, err, x.want)
		}
	}
}

// FuzzConn checks that no input makes the server panic, or keep more than its bounds.
func FuzzConn(f *testing.F) {
	f.Add(bytes.Join([][]byte{connect, publish, chunks(4, Message{Type: TypeAudio, Body: []byte{1, 2}}, 128)}, nil))
	f.Add([]byte{0x01, 1, 1, 0, 0, 0, 0, 0, 1, 8, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		w := &wire{Reader: bytes.NewReader(append(bytes.Clone(hello), b...))}
		c, err := Accept(w)
		if err != nil {
			return
		}
		for err = c.Permit(); err == nil; {
			_, err = c.Read()
			held := 0
			for _, s := range c.in.streams {
				held += len(s.part)
			}
			if held != c.in.incomplete || held > maxIncomplete {
				t.Fatalf("%d bytes are kept, counted as %d", held, c.in.incomplete)
			}
		}
	})
}
