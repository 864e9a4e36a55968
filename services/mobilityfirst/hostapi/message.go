package hostapi

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

const (
	// MaxChunk is the maximum size of a chunk in bytes.
	MaxChunk = 16 << 20
	// MaxMessage is the maximum size in bytes of a message behind its length.
	MaxMessage = MaxChunk + 64
	// MaxUnderway limits the bytes of chunks that one application has sent and whose receivers have
	// not taken them over. A single chunk may be larger. The host refuses more.
	MaxUnderway = 16 << 20
	// Overhead is what each chunk counts besides its payload, in bytes, towards MaxUnderway.
	Overhead = 512
	// MaxSends limits the number of chunks that one application has in flight.
	MaxSends = 8192
	// MaxAhead limits the chunks that the host delivers before the application has taken the first
	// of them.
	MaxAhead = 64
	// MaxAheadBytes limits the bytes of these chunks, without the last one.
	MaxAheadBytes = 16 << 20
	// MaxPings limits the pending pings of one application.
	MaxPings = 1024
	// ContentWithin is how long a host keeps a chunk with the service frame.ContentRequest or
	// frame.ContentResponse: after that no requester waits for it. The host keeps it for longer
	// only behind chunks that it keeps for longer.
	ContentWithin = 10 * time.Second
	// MaxReason is the maximum size in bytes of a reason.
	MaxReason = 500
)

// Kind is the kind of a message.
type Kind uint8

// The kinds of messages.
const (
	Attach Kind = 1 + iota
	Send
	Take
	Ping
	Attached
	Sent
	ChunkCame
	Pong
	Failed
	Refuse
)

// SeedSize is the size of a key's seed.
const SeedSize = 32

// Message is a message of any kind. Each kind uses some of the fields.
type Message struct {
	Kind   Kind
	Number uint32        // Send, Take, Refuse, Ping, Sent, ChunkCame, Pong
	Name   frame.GUID    // Send, Ping: the destination; Attached: the attached name; ChunkCame: the source
	Within time.Duration // Ping: how long to wait; Pong: how long it took
	// Service is the service of a chunk: Send, ChunkCame.
	Service frame.Service
	// Seed is the seed of the name's key: Attach.
	Seed [SeedSize]byte
	// Place is where a chunk has come from: ChunkCame.
	Place Place
	// Payload is the payload of a chunk: Send, ChunkCame.
	Payload []byte
	// Reason is the reason of a failure: Sent, Pong, Failed.
	Reason string
}

// Place identifies a neighbour of a host or, for chunks from beyond the host's links, an IPv4
// address. It stays the same when the host restarts. Many names may send from one place: those of
// one machine, or of all hosts behind a router. An application can limit by places what it does for
// others, because creating names costs nothing. Zero means that the place is not known.
type Place uint64

// ErrMessage means that the bytes are not a valid message; errors wrap it.
var ErrMessage = errors.New("not a message of a MobilityFirst host")

var be = binary.BigEndian

// AppendHead appends the message without its Payload, which has to follow.
func (m *Message) AppendHead(b []byte) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0, byte(m.Kind))
	switch m.Kind {
	case Attach:
		b = append(b, m.Seed[:]...)
	case Send, ChunkCame:
		b = be.AppendUint16(be.AppendUint32(b, m.Number), uint16(m.Service))
		b = append(b, m.Name[:]...)
		if m.Kind == ChunkCame {
			b = be.AppendUint64(b, uint64(m.Place))
		}
	case Take, Refuse:
		b = be.AppendUint32(b, m.Number)
	case Ping:
		b = append(be.AppendUint32(b, m.Number), m.Name[:]...)
		b = be.AppendUint32(b, uint32(m.Within.Milliseconds()))
	case Attached:
		b = append(b, m.Name[:]...)
	case Sent:
		b = append(be.AppendUint32(b, m.Number), m.reason()...)
	case Pong:
		b = be.AppendUint64(be.AppendUint32(b, m.Number), uint64(m.Within))
		b = append(b, m.reason()...)
	case Failed:
		b = append(b, m.reason()...)
	}
	be.PutUint32(b[start:], uint32(len(b)-start-4+len(m.Payload)))
	return b
}

func (m *Message) reason() string { return m.Reason[:min(len(m.Reason), MaxReason)] }

// Parse parses a message from the bytes behind its length and shares their memory. The error wraps
// ErrMessage.
func Parse(b []byte) (m Message, err error) {
	if len(b) == 0 {
		return m, fmt.Errorf("no bytes: %w", ErrMessage)
	}
	m.Kind, b = Kind(b[0]), b[1:]
	if fixed, ok := fixedSizes[m.Kind]; !ok || len(b) < fixed {
		return m, fmt.Errorf("kind %d with %d bytes: %w", m.Kind, len(b), ErrMessage)
	}
	switch m.Kind {
	case Attach:
		b = b[copy(m.Seed[:], b):]
	case Attached:
		b = b[copy(m.Name[:], b):]
	case Failed:
	default:
		m.Number, b = be.Uint32(b), b[4:]
	}
	switch m.Kind {
	case Send, ChunkCame:
		m.Service = frame.Service(be.Uint16(b))
		b = b[2:]
		b = b[copy(m.Name[:], b):]
		if m.Kind == ChunkCame {
			m.Place, b = Place(be.Uint64(b)), b[8:]
		}
		m.Payload = b
		return m, m.chunk()
	case Ping:
		b = b[copy(m.Name[:], b):]
		m.Within, b = time.Duration(be.Uint32(b))*time.Millisecond, b[4:]
	case Pong:
		m.Within, b = time.Duration(be.Uint64(b)), b[8:]
	}
	switch m.Kind {
	case Sent, Pong, Failed:
		if len(b) > MaxReason {
			return m, fmt.Errorf("kind %d with a reason of %d bytes: %w", m.Kind, len(b), ErrMessage)
		}
		m.Reason, b = string(b), nil
	}
	if len(b) > 0 {
		return m, fmt.Errorf("kind %d with %d bytes more: %w", m.Kind, len(b), ErrMessage)
	}
	return m, nil
}

// fixedSizes contains the minimum size of each kind in bytes.
var fixedSizes = map[Kind]int{
	Attach: SeedSize, Send: 4 + 2 + 20, Take: 4, Ping: 4 + 20 + 4, Attached: 20, Sent: 4, ChunkCame: 4 + 2 + 20 + 8, Pong: 4 + 8, Failed: 0, Refuse: 4,
}

func (m *Message) chunk() error {
	if len(m.Payload) > MaxChunk {
		return fmt.Errorf("chunk of %d bytes, at most %d: %w", len(m.Payload), MaxChunk, ErrMessage)
	}
	return nil
}

// Read reads a message of at most limit bytes behind its length. The message has its own memory,
// and uses no more than has been received. The error wraps ErrMessage, or is the reader's: io.EOF
// between two messages.
func Read(r *bufio.Reader, limit int) (Message, error) {
	head, err := r.Peek(lengthSize)
	if err != nil {
		if err == io.EOF && len(head) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return Message{}, err
	}
	n := int64(be.Uint32(head))
	if n > int64(limit) {
		return Message{}, fmt.Errorf("%d bytes, at most %d: %w", n, limit, ErrMessage)
	}
	if n <= smallMessage {
		return readSmall(r, int(n))
	}
	_, _ = r.Discard(lengthSize) // the bytes are in the buffer
	b := make([]byte, min(n, initialBuffer))
	_, err = io.ReadFull(r, b)
	for err == nil && int64(len(b)) < n {
		more := make([]byte, min(n, int64(2*len(b))))
		copied := copy(more, b)
		_, err = io.ReadFull(r, more[copied:])
		b = more
	}
	if err != nil {
		return Message{}, fmt.Errorf("message of %d bytes: %w", n, errors.Join(err, ErrMessage))
	}
	return Parse(b)
}

// readSmall reads a message from the reader's buffer, without memory of its own except for its
// payload.
func readSmall(r *bufio.Reader, n int) (Message, error) {
	b, err := r.Peek(lengthSize + n)
	if err != nil {
		return Message{}, fmt.Errorf("message of %d bytes: %w", n, errors.Join(err, ErrMessage))
	}
	m, err := Parse(b[lengthSize:])
	m.Payload = bytes.Clone(m.Payload)
	_, _ = r.Discard(lengthSize + n) // the bytes are in the buffer
	return m, err
}

// lengthSize is the size of a message's length in bytes. A message of at most smallMessage bytes
// behind it is read from the reader's buffer.
const lengthSize, smallMessage = 4, 128

// initialBuffer is the memory that is allocated for a message before more of it has been received.
const initialBuffer = 1<<20 + 64
