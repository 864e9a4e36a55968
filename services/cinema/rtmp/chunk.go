package rtmp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Types of messages (RTMP 1.0, sections 5.4, 6.2 and 7.1).
const (
	typeChunkSize  = 1
	typeAbort      = 2
	typeAck        = 3
	typeWindowSize = 5
	typeBandwidth  = 6
	// TypeAudio and TypeVideo are the types of the messages that make up a stream. Their bodies
	// are those of FLV tags of the same type.
	TypeAudio   = 8
	TypeVideo   = 9
	typeCommand = 20
)

// Bounds of what a client sends.
const (
	// maxChunkStreams bounds the chunk streams of a connection. Clients use about five.
	maxChunkStreams = 32
	// maxEarly bounds the bytes that are read before the client may publish.
	maxEarly = 64 << 10
	// maxIncomplete bounds the incomplete messages of all chunk streams, in bytes. A key frame
	// is one message.
	maxIncomplete = 4 << 20
)

var (
	errTooMuch    = fmt.Errorf("more than %d bytes of incomplete messages", maxIncomplete)
	errTooEarly   = fmt.Errorf("more than %d bytes before the stream begins", maxEarly)
	errManyChunks = fmt.Errorf("more than %d chunk streams", maxChunkStreams)
	errChunk      = errors.New("invalid chunk")
)

// Message is one message of a client.
type Message struct {
	Type byte
	// Timestamp is in milliseconds, and wraps around.
	Timestamp uint32
	// Body is valid until the next message of the connection.
	Body []byte

	stream uint32 // message stream
}

// chunkStream is the state of one chunk stream.
type chunkStream struct {
	started  bool
	message  Message
	length   int    // of the present message
	delta    uint32 // of timestamps
	extended bool   // the last timestamp was an extended one
	part     []byte // bytes of the present message that have arrived
}

// chunkReader reads messages from chunks (section 5.3.1).
type chunkReader struct {
	r          *bufio.Reader
	size       int // of chunks
	streams    map[uint32]*chunkStream
	incomplete int    // bytes of incomplete messages
	count      uint32 // bytes that were read
	early      bool   // the client may not publish yet
}

func newChunkReader(r io.Reader) *chunkReader {
	return &chunkReader{r: bufio.NewReader(r), size: 128, streams: map[uint32]*chunkStream{}, early: true}
}

// read returns the next message.
func (c *chunkReader) read() (Message, error) {
	for {
		s, err := c.readChunk()
		if err != nil {
			return Message{}, err
		}
		if len(s.part) == s.length {
			m := s.message
			m.Body = s.part
			c.incomplete -= len(s.part)
			s.part = nil
			return m, nil
		}
	}
}

// readChunk reads one chunk into its stream.
func (c *chunkReader) readChunk() (*chunkStream, error) {
	format, id, err := c.basicHeader()
	if err != nil {
		return nil, err
	}
	s := c.streams[id]
	if s == nil {
		if len(c.streams) >= maxChunkStreams {
			return nil, errManyChunks
		}
		s = &chunkStream{}
		c.streams[id] = s
	}
	if format != 0 && !s.started || format != 3 && len(s.part) > 0 {
		return nil, errChunk
	}
	if err := c.messageHeader(s, format); err != nil {
		return nil, err
	}
	n := min(s.length-len(s.part), c.size)
	if c.incomplete+n > maxIncomplete {
		return nil, errTooMuch
	}
	from := len(s.part)
	s.part = append(s.part, make([]byte, n)...)
	c.incomplete += n
	return s, c.fill(s.part[from:])
}

// fill reads exactly len(b) bytes.
func (c *chunkReader) fill(b []byte) error {
	n, err := io.ReadFull(c.r, b)
	c.count += uint32(n)
	if err == nil && c.early && c.count > maxEarly {
		err = errTooEarly
	}
	return err
}

// basicHeader reads the format of a chunk and the number of its stream.
func (c *chunkReader) basicHeader() (format byte, id uint32, err error) {
	var b [3]byte
	if err := c.fill(b[:1]); err != nil {
		return 0, 0, err
	}
	format = b[0] >> 6
	switch id = uint32(b[0] & 0x3f); id {
	case 0:
		err = c.fill(b[1:2])
		id = 64 + uint32(b[1])
	case 1:
		err = c.fill(b[1:3])
		id = 64 + uint32(b[1]) + 256*uint32(b[2])
	}
	return format, id, err
}

// messageHeader reads the rest of a chunk's header. In a chunk that continues a message, this is only
// the extended timestamp, if the message has one.
func (c *chunkReader) messageHeader(s *chunkStream, format byte) error {
	var b [11]byte
	fields := b[:[]int{11, 7, 3, 0}[format]]
	if err := c.fill(fields); err != nil {
		return err
	}
	stamp := s.delta
	if format < 3 {
		stamp = uint24(b[:])
		s.extended = stamp == 0xffffff
	}
	if format < 2 {
		s.length, s.message.Type = int(uint24(b[3:])), b[6]
	}
	if format == 0 {
		s.message.stream = binary.LittleEndian.Uint32(b[7:])
	}
	if s.extended {
		var long [4]byte
		if err := c.fill(long[:]); err != nil {
			return err
		}
		stamp = binary.BigEndian.Uint32(long[:])
	}
	switch {
	case len(s.part) > 0: // the chunk continues a message
	case format == 0:
		s.message.Timestamp, s.delta = stamp, 0
	case format == 3 && s.extended:
		s.message.Timestamp += s.delta
	default:
		s.message.Timestamp += stamp
		s.delta = stamp
	}
	s.started = true
	return nil
}

// abort drops the incomplete message of a chunk stream.
func (c *chunkReader) abort(id uint32) {
	if s := c.streams[id]; s != nil {
		c.incomplete -= len(s.part)
		s.part = nil
	}
}

func uint24(b []byte) uint32 { return uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2]) }

// appendMessage appends a message as one chunk with a full header. chunk is the number of the chunk
// stream. The message must fit into a chunk of the size that the server has announced (chunkSize).
func appendMessage(b []byte, chunk byte, m Message) []byte {
	n := len(m.Body)
	b = append(b, chunk, 0, 0, 0, byte(n>>16), byte(n>>8), byte(n), m.Type)
	b = binary.LittleEndian.AppendUint32(b, m.stream)
	return append(b, m.Body...)
}
