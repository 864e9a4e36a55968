package linkprobe

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/network/diagnosis"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/topology"
)

var near, far, other = topology.PortRef{Switch: 1, Port: 2}, topology.PortRef{Switch: 2, Port: 1}, topology.PortRef{Switch: 3, Port: 7}

// line carries the frames of one direction: it returns what arrives of a frame.
type line func(frame []byte) [][]byte

func sound(frame []byte) [][]byte { return [][]byte{frame} }

func silent([]byte) [][]byte { return nil }

// only carries the frames for which ok is true.
func only(ok func(frame []byte, h packet.Headers) bool) line {
	return func(frame []byte) [][]byte {
		h, _ := packet.Parse(frame)
		if !ok(frame, h) {
			return nil
		}
		return [][]byte{frame}
	}
}

func upTo(size int) line {
	return only(func(frame []byte, _ packet.Headers) bool { return len(frame) <= size })
}

func tagged(vlan uint16, frame []byte) []byte {
	return slices.Concat(frame[:12], []byte{0x81, 0, byte(vlan >> 8), byte(vlan)}, frame[12:])
}

// examine lets both directions send all their frames over their lines.
func examine(t *testing.T, mtu int, there, back line) []diagnosis.Finding {
	t.Helper()
	ways := []*Direction{NewDirection(near, far, mtu), NewDirection(far, near, mtu)}
	for i, l := range []line{there, back} {
		w := ways[i]
		carry(w, l)
		if w.Sent() > MaxFrames {
			t.Errorf("%d frames were sent one way, want at most %d", w.Sent(), MaxFrames)
		}
	}
	return Judge(ways[0], ways[1])
}

// carry lets a Direction send all its frames over its line.
func carry(w *Direction, l line) {
	for frames := w.Next(); len(frames) > 0; frames = w.Next() {
		for _, f := range frames {
			for _, g := range l(f) {
				w.Receive(w.To, g)
			}
		}
	}
}

// dissertation is a direction as a broken module made it: pings of more than 18 bytes of payload
// and TCP with DF are lost, other TCP and UDP lose their last 192 bytes.
func dissertation(frame []byte) [][]byte {
	h, _ := packet.Parse(frame)
	switch {
	case h.EthType != packet.TypeIPv4:
	case h.Proto == packet.ProtoICMP:
		if len(frame) > 60 {
			return nil
		}
	case h.Proto == packet.ProtoTCP && frame[20]&0x40 != 0:
		return nil
	case len(frame) <= 192+60:
		return nil
	default:
		return [][]byte{frame[:len(frame)-192]}
	}
	return [][]byte{frame}
}

func TestJudge(t *testing.T) {
	for name, tt := range map[string]struct {
		there, back line
		mtu         int
		want        []string // what the findings say, all of them
	}{
		"sound":            {sound, sound, 1500, nil},
		"sound, jumbo":     {upTo(9018), sound, 9000, nil},
		"MTU of 576":       {upTo(594), sound, 576, nil},
		"carries more":     {upTo(1526), upTo(9018), 1500, nil},
		"dead":             {silent, silent, 1500, []string{"dead 1/2: nothing arrives, in either direction"}},
		"one way":          {silent, sound, 1500, []string{"one-way 1/2: nothing arrives, while"}},
		"other way":        {sound, silent, 1500, []string{"one-way 2/1: nothing arrives, while"}},
		"18 bytes":         {upTo(60), sound, 1500, []string{"large 1/2: IP of every kind: nothing larger than 60 bytes arrives (18 bytes of payload"}},
		"smaller MTU":      {upTo(1414), sound, 1500, []string{"small-mtu 1/2: IP packets of up to 1400 bytes arrive, the MTU is said to be 1500"}},
		"jumbo lost":       {upTo(1518), sound, 9000, []string{"small-mtu 1/2: IP packets of up to 1504 bytes arrive, the MTU is said to be 9000"}},
		"layer 2 meant":    {upTo(1500), sound, 1500, []string{"small-mtu 1/2: IP packets of up to 1486 bytes arrive, the MTU is said to be 1500: a device on the way counts the Ethernet header (14 bytes)"}},
		"a byte too small": {upTo(1513), sound, 1500, []string{"small-mtu 1/2: IP packets of up to 1499 bytes arrive"}},
		"no room for tags": {upTo(1514), sound, 1500, []string{"tag-no-room 1/2: packets of the MTU (1500)"}},
		"dissertation": {dissertation, sound, 1500, []string{
			"large 1/2: ICMP, ICMP with DF: nothing larger than 60 bytes arrives",
			"cut 1/2: UDP, UDP with DF, TCP: arrives without its last 192 bytes",
			"kinds 1/2: TCP with DF: none arrives",
		}},
		"cut": {func(f []byte) [][]byte { return [][]byte{f[:min(len(f), 1000)]} }, sound, 1500, []string{"cut 1/2: IP of every kind: arrives without its last 514 bytes"}},
		"no ARP": {only(func(_ []byte, h packet.Headers) bool { return h.EthType != packet.TypeARP }), sound, 1500, []string{
			"kinds 1/2: ARP: none arrives",
		}},
		"LLDP alone": {only(func(_ []byte, h packet.Headers) bool { return h.EthType == packet.TypeLLDP }), sound, 1500, []string{
			"kinds 1/2: ARP, ICMP, ICMP with DF, UDP, UDP with DF, TCP, TCP with DF: none arrives",
		}},
		"no small frames": {only(func(f []byte, _ packet.Headers) bool { return len(f) > 64 }), sound, 1500, []string{
			"kinds 1/2: LLDP, ARP: none arrives", "small 1/2: IP of every kind: frames of 60 bytes do not arrive",
		}},
		"changed": {func(f []byte) [][]byte {
			g := bytes.Clone(f)
			g[30] ^= 0x80
			return [][]byte{g}
		}, sound, 1500, []string{"changed 1/2: LLDP, ARP, ICMP, ICMP with DF, UDP, UDP with DF, TCP, TCP with DF: arrives changed, the first time in byte 31"}},
		"bytes added": {func(f []byte) [][]byte { return [][]byte{append(bytes.Clone(f), 1, 2, 3, 4)} }, sound, 1500, []string{
			"changed 1/2: LLDP, ARP: arrives changed, the first time in byte 61", "changed 1/2: IP of every kind: arrives changed, the first time in byte 1515",
		}[:1]},
		"padded": {func(f []byte) [][]byte { return [][]byte{append(bytes.Clone(f), 0, 0, 0, 0)} }, sound, 1500, nil},
		"no tags": {only(func(f []byte, _ packet.Headers) bool { _, tag := tag(f); return !tag }), sound, 1500, []string{
			"tag-refused 1/2",
		}},
		"tags removed":    {func(f []byte) [][]byte { return [][]byte{untagged(f)} }, sound, 1500, []string{"tag-removed 1/2"}},
		"tags translated": {func(f []byte) [][]byte { return [][]byte{translated(f)} }, sound, 1500, []string{"tag-changed 1/2: VLAN 3999 arrives as VLAN 42"}},
		"tags added": {func(f []byte) [][]byte {
			if _, ok := tag(f); ok {
				return nil
			}
			return [][]byte{tagged(42, f)}
		}, sound, 1500, []string{"tag-added 1/2: frames without a VLAN tag arrive with one, of VLAN 42", "tag-refused 1/2"}},
		"twice": {func(f []byte) [][]byte { return [][]byte{f, f} }, sound, 1500, nil},
	} {
		t.Run(name, func(t *testing.T) {
			found := examine(t, tt.mtu, tt.there, tt.back)
			var got []string
			for _, f := range found {
				got = append(got, string(f.Fault)+" "+short(f.From)+": "+f.Found)
				if f.Remedy == "" || f.Level == "" || f.From == f.To {
					t.Errorf("a finding without place or remedy: %+v", f)
				}
			}
			ok := len(got) >= len(tt.want) && (len(got) == len(tt.want) || name == "bytes added")
			for i := range tt.want {
				ok = ok && strings.HasPrefix(got[i], tt.want[i])
			}
			if !ok {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(tt.want, "\n  "))
			}
		})
	}
}

func translated(f []byte) []byte {
	if _, ok := tag(f); !ok {
		return f
	}
	return tagged(42, untagged(f))
}

func short(p topology.PortRef) string {
	return string('0'+rune(p.Switch)) + "/" + string('0'+rune(p.Port))
}

// TestLargestFrameIsFound checks that every MTU between the smallest and the configured one is
// found to the byte.
func TestLargestFrameIsFound(t *testing.T) {
	for n := smallest; n < ethHeader+DefaultMTU; n += 7 {
		w := NewDirection(near, far, DefaultMTU)
		for frames := w.Next(); len(frames) > 0; frames = w.Next() {
			for _, f := range frames {
				for _, g := range upTo(n)(f) {
					w.Receive(far, g)
				}
			}
		}
		if got := w.sizeSearch.largest(ICMP); got != n || w.Sent() > MaxFrames {
			t.Fatalf("a line of %d bytes: found %d with %d frames", n, got, w.Sent())
		}
	}
}

// TestLossByChanceIsNoFault checks that a link which loses one frame in twenty by chance has no
// fault, because lost frames are repeated.
func TestLossByChanceIsNoFault(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		lossy := only(func([]byte, packet.Headers) bool { return r.IntN(20) > 0 })
		if found := examine(t, DefaultMTU, lossy, lossy); len(found) > 0 {
			t.Errorf("seed %d: %+v", seed, found)
		}
	}
}

// TestElsewhere checks that frames which arrive at another port are reported, and do not count
// at the right one.
func TestElsewhere(t *testing.T) {
	w, back := NewDirection(near, far, DefaultMTU), NewDirection(far, near, DefaultMTU)
	for _, x := range []*Direction{w, back} {
		for _, f := range x.Next() {
			x.Receive(x.To, f)
			if x == w {
				x.Receive(other, f)
			}
		}
	}
	found := Judge(w, back)
	if len(found) != 1 || found[0].Fault != Shared || !strings.Contains(found[0].Found, other.String()) {
		t.Errorf("%+v", found)
	}
	only := NewDirection(near, far, DefaultMTU)
	for _, f := range only.Next() {
		only.Receive(other, f)
	}
	if only.arrived() {
		t.Error("what came out elsewhere counts as arrived")
	}
}

// TestAnswersAreNotBelievedUnseen checks that frames cannot be forged by somebody who has not
// seen them, and that the number of received frames is bounded.
func TestAnswersAreNotBelievedUnseen(t *testing.T) {
	w := NewDirection(near, far, DefaultMTU)
	for _, f := range w.Next() {
		h := build(UDP, len(f), w.MAC, [markSize]byte{1, 2, 3, 4, 5, 6})
		w.Receive(far, h)
	}
	if w.arrived() {
		t.Error("a frame with a guessed mark counts as arrived")
	}
	frames := w.frames([]frameSize{{UDP, smallest}})
	for range maxReceived {
		w.Receive(far, make([]byte, 60))
	}
	w.Receive(far, frames[0])
	if w.arrived() {
		t.Errorf("more than %d frames were looked at", maxReceived)
	}
}

func FuzzReceive(f *testing.F) {
	w := NewDirection(near, far, DefaultMTU)
	for _, frame := range w.Next() {
		f.Add(frame)
		f.Add(tagged(7, frame))
		f.Add(frame[:len(frame)/2])
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		w.received = 0
		w.Receive(far, frame)
		for _, r := range w.results {
			if r.intactBytes > r.untaggedSize() || r.changedAt > r.untaggedSize() {
				t.Fatalf("%+v", r)
			}
		}
		Judge(w, NewDirection(far, near, DefaultMTU))
	})
}

// TestFrames checks that every frame has the requested size, its mark at the expected place, and
// correct lengths and checksums.
func TestFrames(t *testing.T) {
	mark := [markSize]byte{1, 2, 3, 4, 5, 6}
	for k := range numKinds {
		for _, size := range []int{smallest, 61, 590, 1514, 9018} {
			switch {
			case k == TaggedUDP:
				size += tagSize
			case !k.anySize() && size > smallest:
				continue
			}
			f := build(k, size, NewDirection(near, far, DefaultMTU).MAC, mark)
			h, err := packet.Parse(f)
			if err != nil || len(f) != size || !Is(h.EthSrc) || !bytes.Equal(untagged(f)[markAt[k]:markAt[k]+markSize], mark[:]) {
				t.Fatalf("%v of %d bytes: %v, %x", k, size, err, f)
			}
			if !h.Has(packet.IPv4) {
				continue
			}
			ip := untagged(f)[ethHeader:]
			pseudo := packet.Sum(ip[12:20], uint32(h.Proto)+uint32(len(ip)-ipv4Header))
			if h.Proto == packet.ProtoICMP {
				pseudo = 0
			}
			if packet.Checksum(packet.Sum(ip[:ipv4Header], 0)) != 0 || packet.Checksum(packet.Sum(ip[ipv4Header:], pseudo)) != 0 {
				t.Errorf("%v of %d bytes: wrong checksum: %x", k, size, f)
			}
			if df := ip[6]&0x40 != 0; df != k.df() || h.End != len(f) {
				t.Errorf("%v of %d bytes: DF %v, ends at %d", k, size, df, h.End)
			}
		}
	}
}
