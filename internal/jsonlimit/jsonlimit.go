// Package jsonlimit bounds JSON texts that come from others before they are decoded. A text of
// a megabyte can hold hundreds of thousands of values, or be nested ten thousand levels deep;
// what a decoder and the code behind it make of such a text costs far more than its bytes.
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

// Limits bounds the shape of a JSON text. Its size in bytes is bounded where it is read.
type Limits struct {
	Depth  int // of lists and objects within one another, at most 64
	Values int // all values, those of lists and objects included
	List   int // elements of one list, or members of one object
	Key    int // bytes of an object's key as it is written
}

// Default is for bodies of requests. The largest that any operation takes has 8 levels and
// some thousands of values.
var Default = Limits{Depth: 32, Values: 50_000, List: 50_000, Key: 1024}

// Check returns an error if a text exceeds the limits. It reads the text once, allocates
// nothing, and does not check its syntax.
func (l Limits) Check(text []byte) error {
	depth, values := 0, 1
	var elements [maxDepth + 1]int // of the list or object at each level
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

// endOfString returns the place of the quotation mark that ends a string, or of the last byte.
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

// isKey reports whether a colon follows.
func isKey(text []byte, i int) bool {
	rest := bytes.TrimLeft(text[min(i, len(text)):], " \t\r\n")
	return len(rest) > 0 && rest[0] == ':'
}

// Decode decodes a text that is one JSON value into v. It refuses a text beyond the limits,
// fields that v does not have, and anything behind the value.
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
