package openflow

import (
	"fmt"
	"io"
)

// Reader splits a byte stream into messages without copying them.
type Reader struct {
	r          io.Reader
	limit      int // of a message's length
	buf        []byte
	start, end int // what was read and not yet handed out
}

const (
	// firstBuffer is the initial size of a reader's buffer, which is small because many
	// connections are quiet. The buffer is doubled when that much data arrives at once.
	firstBuffer = 4 << 10
	// largestBuffer holds the longest message twice, so that a message seldom has
	// to be moved before the rest of it can be read.
	largestBuffer = 2 * (MaxMessage + 1)
)

// NewReader returns a Reader on r. It reads ahead, so nobody else may read from r.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: r, limit: MaxMessage, buf: make([]byte, firstBuffer)}
}

// Limit makes messages of more than n bytes an error from now on. The default limit is
// MaxMessage bytes.
func (r *Reader) Limit(n int) { r.limit = n }

// Next returns the next message, header included. The bytes are valid until the next call. It
// returns an error for a header whose length is below its own size, and io.ErrUnexpectedEOF for
// a stream that ends within a message. At the end of the stream it returns io.EOF.
//
// After an error of the stream itself, such as a passed deadline, no data is lost and Next may
// be called again. After a wrong length the position in the stream is undefined, and the stream
// must be closed.
func (r *Reader) Next() ([]byte, error) {
	if err := r.fill(headerSize); err != nil {
		return nil, err
	}
	h, err := ParseHeader(r.buf[r.start:r.end])
	if err != nil {
		return nil, err
	}
	n := int(h.Length)
	if n > r.limit {
		return nil, fmt.Errorf("openflow: %v: %w: %d bytes, at most %d", h.Type, ErrTooLong, n, r.limit)
	}
	if err := r.fill(n); err != nil {
		return nil, err
	}
	m := r.buf[r.start : r.start+n : r.start+n]
	r.start += n
	return m, nil
}

// Buffered reports whether the next call of Next will return at once, with a
// message that was read already or with an error.
func (r *Reader) Buffered() bool {
	have := r.end - r.start
	if have < headerSize {
		return false
	}
	n := int(be.Uint16(r.buf[r.start+2:]))
	return n < headerSize || n > r.limit || have >= n
}

// makeRoom moves the buffered bytes to the front of the buffer unless n bytes fit, and enlarges
// a buffer that has been full or is too small.
func (r *Reader) makeRoom(n int) {
	old, size := r.buf, len(r.buf)
	if r.end == size {
		size = min(2*size, largestBuffer)
	}
	for size < n {
		size = min(2*size, largestBuffer)
	}
	switch {
	case size > len(old):
		r.buf = make([]byte, size)
	case r.start < r.end && size-r.start >= n:
		return
	}
	r.end = copy(r.buf, old[r.start:r.end])
	r.start = 0
}

// fill reads until n bytes are buffered.
func (r *Reader) fill(n int) error {
	if r.end-r.start >= n {
		return nil
	}
	r.makeRoom(n)
	for idle := 0; r.end-r.start < n; {
		got, err := r.r.Read(r.buf[r.end:])
		r.end += got
		switch {
		case r.end-r.start >= n:
			return nil
		case err == io.EOF && r.end > r.start:
			return fmt.Errorf("openflow: stream ends within a message, %d of %d bytes: %w", r.end-r.start, n, io.ErrUnexpectedEOF)
		case err != nil:
			return err
		case got > 0:
			idle = 0
		default:
			if idle++; idle == 100 {
				return io.ErrNoProgress
			}
		}
	}
	return nil
}
