// Package jsonlimit bounds JSON texts that other programs have sent, before they are decoded. A
// text of a megabyte can contain hundreds of thousands of values, or be nested ten thousand levels
// deep. To decode and handle such a text costs far more than its size suggests.
package jsonlimit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxDepth is the largest depth that Check can follow.
const maxDepth = 64

// Limits bounds the structure of a JSON text. The size of the text in bytes is bounded where it is
// read.
type Limits struct {
	Depth  int // nesting depth of lists and objects, at most 64
	Values int // number of all values, including those in lists and objects
	List   int // elements of one list, or members of one object
	Key    int // bytes of an object's key as it is written
}

// Default is the limit for the bodies of requests. The largest body that any operation needs has 8
// levels and some thousands of values.
var Default = Limits{Depth: 32, Values: 50_000, List: 50_000, Key: 1024}

// Check returns an error if a text exceeds the limits. It reads the text once, allocates
// nothing, and does not check the text's syntax.
func (l Limits) Check(text []byte) error {
	depth, values := 0, 1
	var elements [maxDepth + 1]int // number of elements of the open list or object at each level
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			begin := i + 1
			i = endOfString(text, begin)
			if i-begin > l.Key && isKey(text, i+1) {
				return fmt.Errorf("a key of %d bytes that begins with %.40q, want at most %d", i-begin, text[begin:i], l.Key)
			}
		case '[', '{':
			if depth++; depth > min(l.Depth, maxDepth) {
				return fmt.Errorf("more than %d levels of lists and objects", l.Depth)
			}
			elements[depth] = 1
			values++
		case ']', '}':
			depth = max(depth-1, 0)
		case ',':
			values++
			if elements[depth]++; elements[depth] > l.List {
				return fmt.Errorf("more than %d elements in a list or an object", l.List)
			}
		}
		if values > l.Values {
			return fmt.Errorf("more than %d values", l.Values)
		}
	}
	return nil
}

// endOfString returns the index of the quotation mark that ends a string, or of the text's last
// byte if there is none.
func endOfString(text []byte, i int) int {
	for ; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(text) - 1
}

// isKey reports whether the next character from i on, after white space, is a colon.
func isKey(text []byte, i int) bool {
	rest := bytes.TrimLeft(text[min(i, len(text)):], " \t\r\n")
	return len(rest) > 0 && rest[0] == ':'
}

// Decode decodes a text that is one JSON value into v. It refuses a text that exceeds the limits,
// fields that v does not have, and anything that follows the value.
func (l Limits) Decode(text []byte, v any) error {
	if err := l.Check(text); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more than one JSON value")
	}
	return nil
}
