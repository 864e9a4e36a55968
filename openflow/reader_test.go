package openflow

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// pieces is a stream that comes in pieces of at most size bytes.
type pieces struct {
	rest []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.rest[:min(p.size, len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
}

// TestReaderCutsAnyStream sends messages of all sizes in pieces of all sizes.
func TestReaderCutsAnyStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 200), rapid.IntRange(0, MaxMessage-headerSize)), 1, 8).Draw(t, "sizes")
		var stream []byte
		for i, n := range sizes {
			var err error
			if stream, err = (&EchoRequest{Data: bytes.Repeat([]byte{byte(i)}, n)}).AppendTo(stream, uint32(i)); err != nil {
				t.Fatal(err)
			}
		}
		r := NewReader(&pieces{stream, rapid.IntRange(1, 1<<17).Draw(t, "piece")})
		var m EchoRequest
		for i, n := range sizes {
			b, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Decode(b); err != nil || XID(b) != uint32(i) || len(m.Data) != n || n > 0 && m.Data[n-1] != byte(i) {
				t.Fatalf("message %d: %v, transaction %d, %d bytes, want %d", i, err, XID(b), len(m.Data), n)
			}
		}
		if _, err := r.Next(); !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("at the end: %v, want io.EOF", err)
		}
	})
}

func TestReaderReportsWhatIsWrong(t *testing.T) {
	hello := mustAppend(NewHello())
	broken := errors.New("broken")
	for _, c := range []struct {
		name string
		r    io.Reader
		want error
	}{
		{"empty", bytes.NewReader(nil), io.EOF},
		{"half a header", bytes.NewReader(hello[:5]), io.ErrUnexpectedEOF},
		{"half a message", bytes.NewReader(hello[:12]), io.ErrUnexpectedEOF},
		{"length below the header", bytes.NewReader([]byte{4, 0, 0, 7, 0, 0, 0, 0}), ErrLength},
		{"length of zero", bytes.NewReader([]byte{4, 0, 0, 0, 0, 0, 0, 0}), ErrLength},
		{"read error", iotest.ErrReader(broken), broken},
		{"read error within a message", io.MultiReader(bytes.NewReader(hello[:12]), iotest.ErrReader(broken)), broken},
		{"nothing ever comes", readerFunc(func([]byte) (int, error) { return 0, nil }), io.ErrNoProgress},
	} {
		if _, err := NewReader(c.r).Next(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// Whoever sends little costs little memory, and what is longer than may be is not waited for.
func TestReaderTakesAsMuchAsIsSent(t *testing.T) {
	hello := mustAppend(NewHello())
	long := mustAppend(&EchoRequest{Data: make([]byte, 5000)})
	r := NewReader(&pieces{append(bytes.Repeat(hello, 1000), long...), len(hello)})
	for range 1000 {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.buf) != firstBuffer {
		t.Errorf("a reader of short messages has a buffer of %d bytes, want %d", len(r.buf), firstBuffer)
	}
	r.Limit(len(long) - 1)
	if _, err := r.Next(); !errors.Is(err, ErrTooLong) {
		t.Errorf("a message that is too long gives %v", err)
	}
	r.Limit(len(long))
	if m, err := r.Next(); err != nil || len(m) != len(long) {
		t.Errorf("a message as long as may be is %d bytes, %v", len(m), err)
	}
}

func TestReaderSaysWhatIsBuffered(t *testing.T) {
	hello := mustAppend(NewHello())
	stream := append(bytes.Repeat(hello, 3), hello[:6]...)
	r := NewReader(bytes.NewReader(stream))
	if r.Buffered() {
		t.Fatal("nothing was read and something is buffered")
	}
	for i := range 3 {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
		if got, want := r.Buffered(), i < 2; got != want {
			t.Errorf("after message %d: buffered %v, want %v", i, got, want)
		}
	}
	bad := NewReader(bytes.NewReader(append(bytes.Clone(hello), 4, 0, 0, 1, 0, 0, 0, 0)))
	if _, err := bad.Next(); err != nil {
		t.Fatal(err)
	}
	if !bad.Buffered() {
		t.Error("an error is waiting and Buffered says that Next would block")
	}
}

// TestReaderGoesOnAfterDeadline lets a deadline strike in the middle of a
// header and of a body.
func TestReaderGoesOnAfterDeadline(t *testing.T) {
	b := mustAppend(&EchoRequest{Data: []byte("hello")})
	for cut := range b {
		r := NewReader(io.MultiReader(iotest.TimeoutReader(&pieces{b[:cut:cut], max(cut, 1)}), bytes.NewReader(b[cut:])))
		got, err := r.Next()
		for range 2 {
			if !errors.Is(err, iotest.ErrTimeout) {
				break
			}
			got, err = r.Next()
		}
		if err != nil || !bytes.Equal(got, b) {
			t.Errorf("cut at %d: %x (%v), want %x", cut, got, err, b)
		}
	}
}
