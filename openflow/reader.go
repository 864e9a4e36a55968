package openflow

import (
	"fmt"
	"io"
)

// Reader cuts a byte stream into messages, without copying them.
type Reader struct {
	r          io.Reader
	buf        []byte
	start, end int // what was read and not yet handed out
}

// readerBuffer holds the longest message twice, so that a message seldom has
// to be moved before the rest of it can be read.
const readerBuffer = 2 * (MaxMessage + 1)

// NewReader returns a Reader on r. It reads ahead: nobody else may read from r.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: r, buf: make([]byte, readerBuffer)}
}

// Next returns the next message, header included. The bytes are valid until
// the next call. A header whose length is below its own size is an error, and
// so is a stream that ends within a message (io.ErrUnexpectedEOF). At the end
// of the stream it returns io.EOF.
//
// An error of the stream itself, a deadline for instance, loses nothing: Next
// may be called again. After a wrong length the stream has no defined place any
// more and must be closed.
func (r *Reader) Next() ([]byte, error) {
	if err := r.fill(headerSize); err != nil {
		return nil, err
	}
	h, err := ParseHeader(r.buf[r.start:r.end])
	if err != nil {
		return nil, err
	}
	n := int(h.Length)
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
	return n < headerSize || have >= n
}

// fill reads until n bytes are there.
func (r *Reader) fill(n int) error {
	if r.end-r.start >= n {
		return nil
	}
	if r.start == r.end {
		r.start, r.end = 0, 0
	} else if len(r.buf)-r.start < n {
		r.end = copy(r.buf, r.buf[r.start:r.end])
		r.start = 0
	}
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
