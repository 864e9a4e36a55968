package media

import (
	"bytes"
	"slices"
	"testing"
)

// TestFirstPicture checks that the first picture is everything with its timestamp, with
// fragments assembled, without sound and the next picture.
func TestFirstPicture(t *testing.T) {
	group := [][]byte{
		datagram(t, VideoType, 1, 900, nalAggregate, 0, 2, 0x67, 1, 0, 2, 0x68, 2),
		datagram(t, AudioType, 1, 480, 9, 9),
		datagram(t, VideoType, 2, 900, 0x7c, 0x85, 3),
		datagram(t, VideoType, 3, 900, 0x7c, 0x45, 4),
		datagram(t, VideoType, 4, 3900, 0x61, 5),
	}
	want := []byte{0, 0, 0, 1, 0x67, 1, 0, 0, 0, 1, 0x68, 2, 0, 0, 0, 1, 0x65, 3, 4}
	if got := FirstPicture(group); !bytes.Equal(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
	for n := range group[:4] {
		if got := FirstPicture(group[:n]); len(got) > 0 {
			t.Errorf("% x of a picture of which %d of 4 packets have come", got, n)
		}
	}
	marked := slices.Clone(group[:4])
	marked[3] = slices.Clone(marked[3])
	marked[3][1] |= 0x80
	if got := FirstPicture(marked); !bytes.Equal(got, want) {
		t.Errorf("% x of a picture whose last packet has the marker, want % x", got, want)
	}
	if got := FirstPicture(nil); len(got) > 0 {
		t.Errorf("% x of nothing", got)
	}
}

func FuzzFirstPicture(f *testing.F) {
	f.Add([]byte{nalAggregate, 0, 2, 0x67, 1}, []byte{0x7c, 0x85, 3}, []byte{0x7c, 0x45, 4})
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		var group [][]byte
		sum := 0
		for i, payload := range [][]byte{a, b, c} {
			group = append(group, datagram(t, VideoType, uint16(i), 900, payload...))
			sum += len(payload)
		}
		if n := len(FirstPicture(group)); n > 2*sum+12 {
			t.Errorf("%d bytes of %d", n, sum)
		}
	})
}
