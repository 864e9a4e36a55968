package media

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/pion/rtp/codecs"
	"pgregory.net/rapid"
)

// picture is a picture of a movie: its access unit, and its packets.
type picture struct {
	unit []byte
	key  bool
}

// movie draws pictures of random sizes, no two alike, and packetizes them as a producer does.
func movie(t *rapid.T, pictures, gop int) (shot []picture, all []sent) {
	var producer codecs.H264Payloader
	sequence, stamp := rapid.Uint16().Draw(t, "sequence"), rapid.Uint32().Draw(t, "stamp")
	for i := range pictures {
		slice := binary.BigEndian.AppendUint16([]byte{0x41}, uint16(0x8080+i)) // no start code
		slice = append(slice, bytes.Repeat([]byte{0xaa}, rapid.IntRange(0, 4000).Draw(t, "size"))...)
		p := picture{key: i%gop == 0}
		nals := [][]byte{slice}
		if p.key {
			slice[0] = 0x65
			nals = [][]byte{{0x67, 0x42, 0xc0, 0x1f, 9}, {0x68, 0xce, 0x3c, 0x80}, slice}
		}
		for _, nal := range nals {
			p.unit = slices.Concat(p.unit, []byte{0, 0, 0, 1}, nal)
		}
		shot = append(shot, p)
		payloads := producer.Payload(1200, p.unit)
		for k, b := range payloads {
			all = append(all, sent{
				Packet{Type: VideoType, Marker: k == len(payloads)-1, Sequence: sequence, Timestamp: stamp + uint32(i)*3600, SSRC: 5, Payload: b},
				time.Duration(i) * 40 * time.Millisecond, northAddr,
			})
			sequence++
		}
	}
	return shot, all
}

// TestViewersSeeWholePictures checks that, whatever packets are lost, late or repeated, a
// viewer decodes complete pictures only, and none without those that it depends on. Without
// loss it decodes all of them.
func TestViewersSeeWholePictures(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const pictures = 60
		gop := rapid.IntRange(4, 30).Draw(t, "gop")
		shot, all := movie(t, pictures, gop)
		lossy := arrives(t, all)
		if rapid.Bool().Draw(t, "repaired") { // a burst repeats the group
			for range rapid.IntRange(1, 4).Draw(t, "bursts") {
				lossy = append(lossy, burst(all, time.Duration(rapid.IntRange(0, pictures*40).Draw(t, "burst"))*time.Millisecond, gop)...)
			}
		}
		slices.SortStableFunc(lossy, func(a, b sent) int { return cmp.Compare(a.at, b.at) })
		s, a := NewSplicer(), NewAssembler(3)
		s.Change(northAddr)
		last, seen, n := -1, time.Duration(-1), 0
		for _, o := range playAll(s, lossy) {
			u, ok := a.Push(o)
			if !ok {
				continue
			}
			i := slices.IndexFunc(shot, func(p picture) bool { return bytes.Equal(p.unit, u.Data[3:]) })
			if i < 0 || shot[i].key != u.Key || !u.Key && i != last+1 || u.Time <= seen {
				t.Fatalf("picture %d at %v after %d at %v", i, u.Time, last, seen)
			}
			last, seen = i, u.Time
			n++
		}
		if len(lossy) == len(all) && s.Counts() == (Counts{Packets: uint64(len(all))}) && n != pictures {
			t.Errorf("%d pictures of %d", n, pictures)
		}
	})
}

// playAll plays the packets, and then releases what still waits.
func playAll(s *Splicer, all []sent) []Out {
	out := play(s, all)
	return append(out, keep(s.Tick(start.Add(time.Minute)))...)
}

// TestSoundAndPictureHaveOneClock checks that sound is one unit per packet, with times of the
// same clock as those of pictures.
func TestSoundAndPictureHaveOneClock(t *testing.T) {
	s, a := NewSplicer(), NewAssembler(0)
	s.Change(northAddr)
	var picture, sound time.Duration
	for _, o := range play(s, film(northAddr, 1, 100, 5000, 100, 25)) {
		u, ok := a.Push(o)
		switch {
		case ok && u.Sound:
			sound = u.Time
		case o.Video():
			picture = o.Time
		}
		if off := picture - sound; sound > 0 && (off < -70*time.Millisecond || off > 70*time.Millisecond) {
			t.Fatalf("sound at %v, picture at %v", sound, picture)
		}
	}
	if sound < 3*time.Second {
		t.Errorf("sound until %v", sound)
	}
}

func TestAssembler(t *testing.T) {
	key := []byte{0x65, 1, 2}
	for _, c := range []struct {
		name    string
		packets [][]byte
		want    []byte // nil means no unit
	}{
		{"one packet", [][]byte{key}, []byte{0, 0, 0, 1, 0x65, 1, 2}},
		{"fragments", [][]byte{{0x7c, 0x85, 1}, {0x7c, 0x05, 2}, {0x7c, 0x45, 3}}, []byte{0, 0, 0, 1, 0x65, 1, 2, 3}},
		{"an aggregate", [][]byte{{0x78, 0, 2, 0x67, 9, 0, 1, 0x68}, key}, []byte{0, 0, 0, 1, 0x67, 9, 0, 0, 0, 1, 0x68, 0, 0, 0, 1, 0x65, 1, 2}},
		{"a packet with nothing in it", [][]byte{key, {}}, []byte{0, 0, 0, 1, 0x65, 1, 2}},
		{"nothing", [][]byte{{}}, nil},
		{"no key frame", [][]byte{{0x41, 1}}, nil},
		{"a fragment without its beginning", [][]byte{key, {0x7c, 0x45, 3}}, nil},
		{"a fragment without its end", [][]byte{{0x7c, 0x85, 1}}, nil},
		{"a fragment in another", [][]byte{{0x7c, 0x85, 1}, {0x7c, 0x85, 1}}, nil},
		{"a unit in a fragment", [][]byte{{0x7c, 0x85, 1}, key}, nil},
		{"an aggregate that is cut off", [][]byte{key, {0x78, 0, 9, 0x67}}, nil},
		{"an aggregate with something after it", [][]byte{key, {0x78, 0, 1, 0x67, 0}}, nil},
		{"another mode", [][]byte{key, {0x79, 0, 1, 0x67}}, nil},
		{"a picture that is too long", slices.Repeat([][]byte{bytes.Repeat([]byte{0x65}, 1400)}, maxUnitSize/1400+1), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := NewAssembler(0)
			for i, p := range c.packets {
				u, ok := a.Push(Out{Packet: Packet{Type: VideoType, Marker: i == len(c.packets)-1, Payload: p}, Timestamp: 1})
				if ok != (c.want != nil && i == len(c.packets)-1) || ok && (!bytes.Equal(u.Data, c.want) || !u.Key) {
					t.Errorf("%v %+v", ok, u)
				}
			}
		})
	}
}

// FuzzAssembler checks that units are within their bound, and begin with a key frame, for any
// packets.
func FuzzAssembler(f *testing.F) {
	f.Add([]byte{3, 0, 0x65, 1, 2, 4, 1, 0x7c, 0x85, 1, 2})
	f.Add([]byte{8, 1, 0x78, 0, 2, 0x67, 9, 0, 1, 0x68, 3, 1, 0x41, 0, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		a, key := NewAssembler(9), false
		for stamp := uint32(0); len(script) >= 2; {
			n, what := min(int(script[0]), len(script)-2), script[1]
			p := Packet{Type: VideoType, Marker: what&1 != 0, Payload: script[2 : 2+n]}
			if what&2 != 0 {
				p.Type = AudioType
			}
			stamp += uint32(what >> 4)
			u, ok := a.Push(Out{Packet: p, Timestamp: stamp})
			script = script[2+n:]
			if !ok || u.Sound {
				continue
			}
			if key = key || u.Key; !key || len(u.Data) > maxUnitSize+9 || !bytes.HasPrefix(u.Data[9:], []byte{0, 0, 0, 1}) {
				t.Fatalf("%+v", u)
			}
		}
	})
}
