package redisnames

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// These constants limit an answer of Redis, because the library allocates as much memory as an
// answer announces, and follows arrays to any depth.
const (
	maxLine  = 1 << 16 // bytes of a line, or of a string
	maxArray = 1 << 16 // elements of an array
	maxDepth = 8       // arrays in arrays
	maxBytes = 1 << 25 // of an answer in total
)

// errTooLarge means that an answer exceeds these limits.
var errTooLarge = errors.New("the answer is larger than allowed")

// errNotRESP means that the input is not RESP2, the only version that is requested: the library
// decodes the maps of RESP3, and panics on keys that are not hashable.
var errNotRESP = errors.New("not an answer of RESP2")

// limitedConn checks the input from a connection to Redis (RESP2), and fails if it exceeds the
// limits or is not valid. It supports one reader.
type limitedConn struct {
	net.Conn
	answerParser
	err error
}

// Read implements net.Conn.
func (g *limitedConn) Read(b []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	n, err := g.Conn.Read(b)
	if g.err = g.parse(b[:n]); g.err != nil {
		return 0, g.err
	}
	return n, err
}

// dial connects to a node.
func (o *Options) dial(ctx context.Context, network, address string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: dialTimeout + o.slack}
	var conn net.Conn
	var err error
	if o.TLS == nil {
		conn, err = plain.DialContext(ctx, network, address)
	} else {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout+o.slack) // the timeout includes the handshake
		defer cancel()
		conn, err = (&tls.Dialer{NetDialer: plain, Config: o.TLS}).DialContext(ctx, network, address)
	}
	if err != nil {
		return nil, err
	}
	return &limitedConn{Conn: conn}, nil
}

// answerParser is the state of parsing an answer.
type answerParser struct {
	line  []byte // the incomplete line
	skip  int    // remaining bytes of a string, including the end of its line
	left  []int  // remaining elements of the enclosing arrays
	bytes int    // the size so far
}

// parse checks further input. The error wraps errTooLarge or errNotRESP.
func (a *answerParser) parse(b []byte) error {
	for len(b) > 0 {
		if a.skip > 0 {
			n := min(a.skip, len(b))
			b, a.skip = b[n:], a.skip-n
			if a.skip == 0 {
				a.endValue()
			}
			continue
		}
		c := b[0]
		b = b[1:]
		if a.line = append(a.line, c); len(a.line) > maxLine {
			return fmt.Errorf("a line of more than %d bytes: %w", maxLine, errTooLarge)
		}
		if c != '\n' {
			continue
		}
		err := a.endLine()
		if a.line = a.line[:0]; err != nil {
			return err
		}
	}
	return nil
}

// endLine handles a complete line.
func (a *answerParser) endLine() error {
	if a.bytes += len(a.line); a.bytes > maxBytes {
		return fmt.Errorf("more than %d bytes: %w", maxBytes, errTooLarge)
	}
	switch kind := a.line[0]; kind {
	case '+', '-', ':':
		a.endValue()
		return nil
	case '$', '*':
		n, err := strconv.Atoi(strings.TrimRight(string(a.line[1:]), "\r\n"))
		if err != nil {
			return fmt.Errorf("a length that is not a number: %w", errTooLarge)
		}
		return a.begin(kind, n)
	default:
		return fmt.Errorf("a line that begins with %q: %w", kind, errNotRESP)
	}
}

// begin handles the beginning of a string of n bytes ('$') or of an array of n elements ('*').
func (a *answerParser) begin(kind byte, n int) error {
	switch isString := kind == '$'; {
	case isString && n > maxLine || !isString && n > maxArray:
		return fmt.Errorf("%d bytes or elements: %w", n, errTooLarge)
	case isString && n >= 0:
		a.skip = n + len("\r\n")
		a.bytes += a.skip
	case !isString && n > 0:
		if a.left = append(a.left, n); len(a.left) > maxDepth {
			return fmt.Errorf("more than %d nested arrays: %w", maxDepth, errTooLarge)
		}
	default:
		a.endValue()
	}
	return nil
}

// endValue handles the end of a value, and of each array whose last element it was.
func (a *answerParser) endValue() {
	for i := len(a.left) - 1; i >= 0; i-- {
		if a.left[i]--; a.left[i] > 0 {
			return
		}
		a.left = a.left[:i]
	}
	a.bytes = 0
}
