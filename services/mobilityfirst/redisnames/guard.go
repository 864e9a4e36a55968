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

// What an answer of Redis has at most: the library makes room for what an answer says that it has, and follows it however deep it
// is nested.
const (
	maxLine  = 1 << 16 // bytes of a line, or of a string
	maxArray = 1 << 16 // elements of an array
	maxDepth = 8       // arrays in arrays
	maxBytes = 1 << 25 // of an answer in all
)

// errTooMuch is for an answer that has more.
var errTooMuch = errors.New("an answer has more than any may")

// errNoAnswer is for what is no answer of RESP2, which is what is asked for: the library makes maps of what RESP3 has, and panics
// if their keys can't be.
var errNoAnswer = errors.New("it is no answer of RESP2")

// guard looks at what comes by a connection to Redis (RESP2), and ends it at what is too much, or nothing that Redis says. It is
// for one reader.
type guard struct {
	net.Conn
	answer
	err error
}

// Read implements net.Conn.
func (g *guard) Read(b []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	n, err := g.Conn.Read(b)
	if g.err = g.look(b[:n]); g.err != nil {
		return 0, g.err
	}
	return n, err
}

// dial connects to a node.
func (o *Options) dial(ctx context.Context, network, address string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: dialWithin + o.slack}
	var conn net.Conn
	var err error
	if o.TLS == nil {
		conn, err = plain.DialContext(ctx, network, address)
	} else {
		ctx, cancel := context.WithTimeout(ctx, dialWithin+o.slack) // of the handshake, too
		defer cancel()
		conn, err = (&tls.Dialer{NetDialer: plain, Config: o.TLS}).DialContext(ctx, network, address)
	}
	if err != nil {
		return nil, err
	}
	return &guard{Conn: conn}, nil
}

// answer is how far an answer has been looked at.
type answer struct {
	line  []byte // as far as it has come
	skip  int    // bytes of a string that are to come yet, with the end of its line
	left  []int  // elements that are to come yet of the arrays that it is in
	bytes int    // so far
}

// look looks at what has come. The error wraps errTooMuch or errNoAnswer.
func (a *answer) look(b []byte) error {
	for len(b) > 0 {
		if a.skip > 0 {
			n := min(a.skip, len(b))
			b, a.skip = b[n:], a.skip-n
			if a.skip == 0 {
				a.ended()
			}
			continue
		}
		c := b[0]
		b = b[1:]
		if a.line = append(a.line, c); len(a.line) > maxLine {
			return fmt.Errorf("a line of more than %d bytes: %w", maxLine, errTooMuch)
		}
		if c != '\n' {
			continue
		}
		err := a.lined()
		if a.line = a.line[:0]; err != nil {
			return err
		}
	}
	return nil
}

// lined is for the end of a line.
func (a *answer) lined() error {
	if a.bytes += len(a.line); a.bytes > maxBytes {
		return fmt.Errorf("more than %d bytes: %w", maxBytes, errTooMuch)
	}
	switch kind := a.line[0]; kind {
	case '+', '-', ':':
		a.ended()
		return nil
	case '$', '*':
		n, err := strconv.Atoi(strings.TrimRight(string(a.line[1:]), "\r\n"))
		if err != nil {
			return fmt.Errorf("a length that is none: %w", errTooMuch)
		}
		return a.holds(kind, n)
	default:
		return fmt.Errorf("a line that begins with %q: %w", kind, errNoAnswer)
	}
}

// holds is for the beginning of a string of n bytes ('$'), or of an array of n elements ('*').
func (a *answer) holds(kind byte, n int) error {
	switch isString := kind == '$'; {
	case isString && n > maxLine || !isString && n > maxArray:
		return fmt.Errorf("%d bytes or elements: %w", n, errTooMuch)
	case isString && n >= 0:
		a.skip = n + len("\r\n")
		a.bytes += a.skip
	case !isString && n > 0:
		if a.left = append(a.left, n); len(a.left) > maxDepth {
			return fmt.Errorf("arrays in %d arrays: %w", maxDepth, errTooMuch)
		}
	default:
		a.ended()
	}
	return nil
}

// ended is for the end of what is no array with elements, and so of each array of which it was the last.
func (a *answer) ended() {
	for i := len(a.left) - 1; i >= 0; i-- {
		if a.left[i]--; a.left[i] > 0 {
			return
		}
		a.left = a.left[:i]
	}
	a.bytes = 0
}
