package delayline

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// superFrame returns what a host's kernel sends: a vnet header and a TCP super-packet with a
// partial checksum and a payload that counts up.
func superFrame(v6 bool, payload, mss int) []byte {
	ipLen, gso, ethertype := 20, byte(gsoTCPv4), uint16(0x0800)
	if v6 {
		ipLen, gso, ethertype = 40, gsoTCPv6, 0x86dd
	}
	const tcpLen = 32
	l4 := 14 + ipLen
	b := make([]byte, vnetLen+l4+tcpLen+payload)
	native.PutUint16(b[vnetHdrLen:], uint16(l4+tcpLen))
	native.PutUint16(b[vnetCsumStart:], uint16(l4))
	native.PutUint16(b[vnetCsumOffset:], 16)
	b[vnetFlags] = vnetNeedsCsum
	if payload > mss {
		b[vnetGSOType] = gso
		native.PutUint16(b[vnetGSOSize:], uint16(mss))
	}
	f := b[vnetLen:]
	binary.BigEndian.PutUint16(f[12:], ethertype)
	ip := f[14:]
	if v6 {
		ip[0], ip[6] = 0x60, 6
		binary.BigEndian.PutUint16(ip[4:], uint16(tcpLen+payload))
	} else {
		ip[0], ip[8], ip[9] = 0x45, 64, 6
		binary.BigEndian.PutUint16(ip[2:], uint16(20+tcpLen+payload))
		binary.BigEndian.PutUint16(ip[4:], 0xfffe) // so that the identification wraps
		binary.BigEndian.PutUint16(ip[10:], ^naiveSum(ip[:20]))
	}
	tcp := f[l4:]
	binary.BigEndian.PutUint32(tcp[4:], 0xffffff00) // so that the sequence number wraps
	tcp[12] = tcpLen / 4 << 4
	tcp[13] = tcpFIN | tcpPSH | tcpCWR | 1<<4
	for i := range payload {
		f[l4+tcpLen+i] = byte(i * 7)
	}
	binary.BigEndian.PutUint16(tcp[16:], naiveSum(pseudoHeader(f, tcpLen+payload)))
	return b
}

// pseudoHeader returns the TCP pseudo-header of a frame for a segment of the given length.
func pseudoHeader(frame []byte, length int) []byte {
	ip := frame[14:]
	var p []byte
	if ip[0]>>4 == 4 {
		p = append(p, ip[12:20]...)
	} else {
		p = append(p, ip[8:40]...)
	}
	return append(p, 0, 6, byte(length>>8), byte(length))
}

// naiveSum returns the Internet checksum's sum as RFC 1071 describes it. Tests compare sum with it.
func naiveSum(b []byte) uint16 {
	var s uint32
	for i := 0; i < len(b); i += 2 {
		word := uint32(b[i]) << 8
		if i+1 < len(b) {
			word |= uint32(b[i+1])
		}
		s += word
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

func TestSumEqualsNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "bytes")
		if got, want := fold(sum(b, 0)), naiveSum(b); got != want {
			t.Fatalf("%#x, want %#x", got, want)
		}
	})
}

// offer gives a line a frame as the loop does.
func offer(l *line, now int64, frame []byte) {
	l.accept(now, l.fifo.space()[:copy(l.fifo.space(), frame)])
}

// drain delivers all frames that are due until the given time and returns copies of them.
func drain(l *line, until int64) [][]byte {
	var out [][]byte
	for l.next() <= until {
		head, body := l.fifo.bytes(l.fifo.at(0))
		out = append(out, append(append([]byte(nil), head...), body...))
		l.delivered(until, true)
	}
	return out
}

// checkSegments checks frames that together carry some of a super-packet's bytes, without offload.
// It returns which bytes of the payload have arrived.
func checkSegments(t *rapid.T, frames [][]byte, v6 bool, payload, mss int) []bool {
	seen := make([]bool, payload)
	l4 := 34
	if v6 {
		l4 = 54
	}
	for i, b := range frames {
		if s, err := parseSuper(b); err != nil || s.segments != 1 || s.needsCsum {
			t.Fatalf("frame %d is not a plain packet: %+v %v", i, s, err)
		}
		f := b[vnetLen:]
		tcp := f[l4:]
		data := tcp[32:]
		if len(data) > mss {
			t.Fatalf("frame %d carries %d bytes, more than %d", i, len(data), mss)
		}
		if got := naiveSum(append(pseudoHeader(f, len(tcp)), tcp...)); got != 0xffff {
			t.Fatalf("frame %d: TCP checksum is wrong: %#x", i, got)
		}
		checkIP(t, f, v6, len(tcp))
		from := int(int32(binary.BigEndian.Uint32(tcp[4:]) + 0x100))
		last, first := from+len(data) == payload, from == 0
		if (tcp[13]&(tcpFIN|tcpPSH) != 0) != last || (tcp[13]&tcpCWR != 0) != first {
			t.Fatalf("frame %d has flags %#x, first %v last %v", i, tcp[13], first, last)
		}
		for j, v := range data {
			if v != byte((from+j)*7) || seen[from+j] {
				t.Fatalf("frame %d: byte %d is wrong or doubled", i, from+j)
			}
			seen[from+j] = true
		}
	}
	return seen
}

func checkIP(t *rapid.T, f []byte, v6 bool, l4Len int) {
	ip := f[14:]
	if v6 {
		if int(binary.BigEndian.Uint16(ip[4:])) != l4Len {
			t.Fatal("IPv6 payload length is wrong")
		}
		return
	}
	if int(binary.BigEndian.Uint16(ip[2:])) != 20+l4Len || naiveSum(ip[:20]) != 0xffff {
		t.Fatal("IPv4 length or checksum is wrong")
	}
}

func TestSegmentationIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v6 := rapid.Bool().Draw(t, "v6")
		mss := rapid.IntRange(100, 9000).Draw(t, "mss")
		payload := rapid.IntRange(1, 65000).Draw(t, "payload")
		l := newLine(Params{}, false, 1)
		offer(l, 0, superFrame(v6, payload, mss))
		for i, ok := range checkSegments(t, drain(l, 0), v6, payload, mss) {
			if !ok {
				t.Fatalf("byte %d is missing", i)
			}
		}
	})
}

// TestLossTakesWholeSegments checks that with loss exactly the lost segments are
// missing, whether or not the receiver takes super-packets.
func TestLossTakesWholeSegments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v6 := rapid.Bool().Draw(t, "v6")
		mss := rapid.IntRange(500, 1460).Draw(t, "mss")
		payload := rapid.IntRange(1, 65000).Draw(t, "payload")
		offload := rapid.Bool().Draw(t, "offload")
		rate := rapid.SampledFrom([]float64{0, 10e6, 1e9, 100e9}).Draw(t, "rate")
		l := newLine(Params{Loss: 0.1, Rate: rate}, offload, rapid.Uint64().Draw(t, "seed"))
		offer(l, 0, superFrame(v6, payload, mss))
		frames := drain(l, math.MaxInt64-1)
		if offload { // cut the frames with a second line that has no offload
			plain := newLine(Params{}, false, 1)
			for _, f := range frames {
				offer(plain, 0, f)
			}
			frames = drainUnmarked(plain)
		}
		missing := 0
		seen := checkFragments(t, frames, v6, payload, mss)
		for at := 0; at < payload; at += mss {
			if !seen[at] {
				missing++
			}
			for i := at; i < min(at+mss, payload); i++ {
				if seen[i] != seen[at] {
					t.Fatalf("segment at %d arrived in part", at)
				}
			}
		}
		if uint64(missing) != l.stats.Lost+l.stats.Dropped {
			t.Fatalf("%d segments are missing, %d counted as lost and %d as dropped", missing, l.stats.Lost, l.stats.Dropped)
		}
	})
}

func drainUnmarked(l *line) [][]byte { return drain(l, math.MaxInt64-1) }

// checkFragments does what checkSegments does, except for the flags: a piece that was cut twice has
// flags that depend on its own ends.
func checkFragments(t *rapid.T, frames [][]byte, v6 bool, payload, mss int) []bool {
	l4 := 34
	if v6 {
		l4 = 54
	}
	seen := make([]bool, payload)
	for i, b := range frames {
		tcp := b[vnetLen+l4:]
		if naiveSum(append(pseudoHeader(b[vnetLen:], len(tcp)), tcp...)) != 0xffff {
			t.Fatalf("frame %d: TCP checksum is wrong", i)
		}
		checkIP(t, b[vnetLen:], v6, len(tcp))
		from := int(int32(binary.BigEndian.Uint32(tcp[4:]) + 0x100))
		if len(tcp)-32 > mss {
			t.Fatalf("frame %d is larger than a segment", i)
		}
		for j, v := range tcp[32:] {
			if v != byte((from+j)*7) || seen[from+j] {
				t.Fatalf("frame %d: byte %d is wrong or doubled", i, from+j)
			}
			seen[from+j] = true
		}
	}
	return seen
}

func TestLossRateIsPerPacket(t *testing.T) {
	for _, loss := range []float64{0.001, 0.01, 0.3} {
		l := newLine(Params{Loss: loss}, true, 7)
		frame := superFrame(false, 64240, 1460)
		for l.stats.ReceivedPackets < 100000 {
			offer(l, 0, frame)
			drain(l, 0)
		}
		n := float64(l.stats.ReceivedPackets)
		deviation := math.Abs(float64(l.stats.Lost)-n*loss) / math.Sqrt(n*loss*(1-loss))
		if deviation > 4 {
			t.Errorf("loss %g: %d of %.0f lost, %.1f standard deviations off", loss, l.stats.Lost, n, deviation)
		}
	}
}

func TestRateDelayAndQueue(t *testing.T) {
	p := Params{Rate: 100e6, Delay: 25 * time.Millisecond, Queue: 125000} // a queue of 10 ms
	l := newLine(p, true, 1)
	frame := make([]byte, vnetLen+1250) // 100 us each
	var delivered int
	// This sends 200 Mbit/s for one second into 100 Mbit/s.
	for now := int64(0); now < 1e9; now += 50_000 {
		offer(l, now, frame)
		delivered += len(drain(l, now))
	}
	if got, want := delivered, 9750; got < want-5 || got > want+5 {
		t.Errorf("delivered %d packets in the second, want %d: the rate less the delay", got, want)
	}
	if l.stats.QueueMax > p.Queue || l.stats.QueueMax < p.Queue*9/10 {
		t.Errorf("the queue reached %d of %d bytes", l.stats.QueueMax, p.Queue)
	}
	flight := l.snapshot(1e9)
	if want := int64(35e-3 * 100e6 / 8); flight.FlightBytes < want*95/100 || flight.FlightBytes > want*105/100 {
		t.Errorf("%d bytes under way, want about %d: queue and delay", flight.FlightBytes, want)
	}
	if sum := l.stats.Dropped + l.stats.DeliveredPackets + uint64(l.fifo.count); sum != l.stats.ReceivedPackets {
		t.Errorf("%d packets of %d accounted for", sum, l.stats.ReceivedPackets)
	}
}

// TestQueueSeconds checks the sum of the queueing delays: of packets that come at once, of a
// super-packet's, and after a change of the rate. The propagation delay is no part of it.
func TestQueueSeconds(t *testing.T) {
	const packet = 1250 // 10 ms at 1 Mbit/s
	slow := Params{Rate: 1e6, Queue: MaxQueue, Delay: time.Second}
	burst := func(l *line, now int64) {
		for range 4 {
			offer(l, now, make([]byte, vnetLen+packet))
		}
	}
	cases := []struct {
		name string
		send func(*line)
		want float64
	}{
		{"one packet", func(l *line) { offer(l, 0, make([]byte, vnetLen+packet)) }, 0},
		{"four at once", func(l *line) { burst(l, 0) }, 0.01 + 0.02 + 0.03},
		{"four behind four", func(l *line) { burst(l, 0); burst(l, 20e6) }, 0.06 + 0.02 + 0.03 + 0.04 + 0.05},
		{"four after four have left", func(l *line) { burst(l, 0); burst(l, 40e6) }, 2 * 0.06},
		// The rate doubles when two of four packets have left, so that the last waits for 5 ms less.
		{"a faster rate", func(l *line) {
			burst(l, 0)
			faster := slow
			faster.Rate = 2e6
			l.set(faster, 20e6)
		}, 0.01 + 0.02 + 0.025},
		{"no rate", func(l *line) { l.set(Params{Delay: time.Second}, 0); burst(l, 0) }, 0},
	}
	for _, c := range cases {
		l := newLine(slow, true, 1)
		c.send(l)
		drain(l, math.MaxInt64-1)
		if got := l.snapshot(0).QueueSeconds; math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s: %v s in the queue, want %v", c.name, got, c.want)
		}
	}
}

// TestQueueSecondsOfSuperPackets checks that packets wait as long in a super-packet as by
// themselves.
func TestQueueSecondsOfSuperPackets(t *testing.T) {
	p := Params{Rate: 1e9, Queue: MaxQueue}
	whole, cut := newLine(p, true, 1), newLine(p, false, 1)
	for _, l := range []*line{whole, cut} {
		for range 3 {
			offer(l, 0, superFrame(false, 40*1460, 1460))
		}
		drain(l, math.MaxInt64-1)
	}
	if whole.stats.QueueSeconds == 0 || math.Abs(whole.stats.QueueSeconds/cut.stats.QueueSeconds-1) > 1e-3 {
		t.Errorf("%v s in super-packets, %v s by themselves", whole.stats.QueueSeconds, cut.stats.QueueSeconds)
	}
}

func TestOrderIsKeptUnderJitterAndChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLine(Params{}, true, rapid.Uint64().Draw(t, "seed"))
		now, next, expect := int64(0), uint32(0), uint32(0)
		receive := func(until int64) {
			for _, f := range drain(l, until) {
				if got := binary.BigEndian.Uint32(f[vnetLen+14:]); got != expect {
					t.Fatalf("packet %d arrived when %d was next", got, expect)
				}
				expect++
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += rapid.Int64Range(0, 5e6).Draw(t, "pause")
			if rapid.IntRange(0, 4).Draw(t, "change") == 0 {
				delay := time.Duration(rapid.Int64Range(0, 20e6).Draw(t, "delay"))
				l.set(Params{
					Rate: rapid.SampledFrom([]float64{0, 1e6, 1e9}).Draw(t, "rate"), Queue: MaxQueue,
					Delay: delay, Jitter: delay / 2,
				}, now)
			}
			for range rapid.IntRange(0, 5).Draw(t, "burst") {
				frame := make([]byte, vnetLen+rapid.IntRange(60, 9000).Draw(t, "size"))
				binary.BigEndian.PutUint32(frame[vnetLen+14:], next)
				next++
				offer(l, now, frame)
			}
			receive(now)
		}
		receive(math.MaxInt64 - 1)
		if expect != next {
			t.Fatalf("%d of %d packets arrived", expect, next)
		}
	})
}

func TestFasterRateAppliesToTheQueue(t *testing.T) {
	l := newLine(Params{Rate: 1e6, Queue: MaxQueue}, true, 1)
	for range 100 {
		offer(l, 0, make([]byte, vnetLen+1250)) // 10 ms each, one second in all
	}
	drain(l, 100e6)
	l.set(Params{Rate: 100e6, Queue: MaxQueue}, 100e6)
	drain(l, 110e6)
	if l.fifo.count != 0 {
		t.Errorf("%d packets still wait for the old rate", l.fifo.count)
	}
}

func TestSlowLinkHandsOnPieces(t *testing.T) {
	l := newLine(Params{Rate: 10e6, Queue: MaxQueue}, true, 1)
	offer(l, 0, superFrame(false, 60000, 1460))
	// 60 kB take 48 ms; half of it must have arrived after half the time.
	drain(l, 24e6)
	if got := l.stats.DeliveredBytes; got < 25000 || got > 32000 {
		t.Errorf("%d bytes after half the time, want about 30000", got)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	l := newLine(Params{Rate: 1e6, Queue: 200_000}, true, 1)
	for range 1000 {
		offer(l, 0, superFrame(false, 64000, 1460))
	}
	if n := len(l.fifo.blocks); n > 4 {
		t.Errorf("%d blocks hold a queue of 200 kB", n)
	}
}

func TestParamsRefused(t *testing.T) {
	for _, p := range []Params{
		{Rate: -1},
		{Rate: math.NaN()},
		{Rate: math.Inf(1)},
		{Rate: 10},
		{Queue: -1},
		{Queue: MaxQueue + 1},
		{Delay: -1},
		{Delay: time.Hour},
		{Jitter: 1},
		{Delay: 1, Jitter: 2},
		{Loss: -0.1},
		{Loss: 1.1},
		{Loss: math.NaN()},
	} {
		if p.Validate() == nil {
			t.Errorf("%+v was accepted", p)
		}
	}
}

// FuzzAccept checks that a line accepts any bytes that a TAP could deliver.
func FuzzAccept(f *testing.F) {
	f.Add(superFrame(false, 5000, 1460), true)
	f.Add(superFrame(true, 5000, 1460), false)
	f.Add(superFrame(false, 10, 1460), false)
	f.Add([]byte{}, true)
	f.Fuzz(func(t *testing.T, b []byte, offload bool) {
		if len(b) > maxRead {
			return
		}
		l := newLine(Params{Rate: 1e9, Loss: 0.2, Delay: time.Millisecond}, offload, 3)
		for range 3 {
			offer(l, 0, b)
		}
		bytes := 0
		for _, frame := range drain(l, math.MaxInt64-1) {
			if bytes += len(frame); len(frame) < vnetLen {
				t.Fatal("a frame without vnet header")
			}
		}
		if l.flight != 0 || l.fifo.count != 0 {
			t.Fatalf("%d bytes left over", l.flight)
		}
	})
}
