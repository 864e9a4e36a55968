package pebblestore

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/store"
)

// FuzzSnapshot reads any bytes as a snapshot: that is an error, or entries that are written and
// read again alike.
func FuzzSnapshot(f *testing.F) {
	var b bytes.Buffer
	if err := encodeSnapshot(&b, time.Unix(1, 0), []store.Entry{{Key: "a/b", Value: []byte("v")}, {Key: "c"}}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, in []byte) {
		at, entries, err := decodeSnapshot(bytes.NewReader(in), 1<<20)
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := encodeSnapshot(&out, at, entries); err != nil {
			t.Fatal(err)
		}
		again, same, err := decodeSnapshot(&out, 4<<20)
		if err != nil || !again.Equal(at) || len(same) != len(entries) || len(entries) > 0 && !reflect.DeepEqual(same, entries) {
			t.Errorf("%v at %v became %v at %v, %v", entries, at, same, again, err)
		}
	})
}

// A snapshot that unpacks to more than it may is refused, not read.
func TestSnapshotIsBounded(t *testing.T) {
	var b bytes.Buffer
	if err := encodeSnapshot(&b, time.Unix(1, 0), []store.Entry{{Key: "zeros", Value: make([]byte, 1<<20)}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := decodeSnapshot(&b, 1<<19); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a snapshot of a megabyte within half of one: %v", err)
	}
}
