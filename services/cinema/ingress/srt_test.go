package ingress

import (
	"encoding/binary"
	"testing"
)

// request returns a client's request with extensions.
func request(extensions ...byte) []byte {
	b := make([]byte, srtExtensions)
	binary.BigEndian.PutUint32(b, srtHandshake)
	binary.BigEndian.PutUint32(b[srtType:], srtConclusion)
	return append(b, extensions...)
}

// TestStreamID checks that a stream ID is found among the extensions of a request.
func TestStreamID(t *testing.T) {
	for _, x := range []struct {
		extensions []byte
		want       string
	}{
		{nil, ""},
		{[]byte{0, 1, 0, 1, 9, 9, 9, 9, 0, 5, 0, 1, 'n', 'e', 'p', 'o'}, "open"},
		{[]byte{0, 5, 0, 2, 'h', 'g', 'i', 'r', 0, 0, 0, 't'}, "right"},
		{[]byte{0, 5, 0, 2, 'h', 'g', 'i', 'r'}, ""}, // cut off
		{[]byte{0, 5, 0}, ""},
	} {
		if got := streamIDOf(request(x.extensions...)); got != x.want {
			t.Errorf("%x: %q, want %q", x.extensions, got, x.want)
		}
	}
}

// FuzzStreamID checks that no request makes the search for its stream ID panic.
func FuzzStreamID(f *testing.F) {
	f.Add([]byte{0, 5, 0, 1, 'x', 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if id := streamIDOf(request(b...)); len(id) > len(b) {
			t.Errorf("%x: %q", b, id)
		}
	})
}
