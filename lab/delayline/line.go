package delayline

import (
	"math"
	"math/rand/v2"
	"time"
)

// maxFlight bounds the bytes that one direction holds, whatever its parameters.
const maxFlight = 512 << 20

// pieceTime bounds the serialisation time of one piece of a super-packet. A slow link passes a
// super-packet on in pieces, as a real line would, and not all at once.
const pieceTime = int64(500 * time.Microsecond)

// line is one direction of a link. It decides what happens to frames, without any I/O. Times are
// nanoseconds of a monotonic clock.
type line struct {
	params  Params
	limit   int64 // bytes that the queue may hold
	offload bool  // reports whether the receiving end takes super-packets
	rng     *rand.Rand
	fifo    *fifo

	lastDepart int64   // when the last queued frame will have been sent
	lastDue    int64   // when the last frame is due; no later frame is due earlier, so that order is kept
	skip       float64 // packets to pass before the next loss
	cuts       []cut
	scratch    []byte
	flight     int64
	lateSum    int64
	lateCount  int64
	stats      Stats
}

func newLine(p Params, offload bool, seed uint64) *line {
	l := &line{offload: offload, rng: rand.New(rand.NewPCG(seed, 0x51c1ce)), fifo: newFIFO()}
	l.set(p, 0)
	return l
}

// set changes the parameters. Frames that still wait for serialisation are scheduled anew; those
// already in flight keep their time of arrival.
func (l *line) set(p Params, now int64) {
	l.params = p
	l.limit = p.QueueLimit()
	l.skip = l.nextLoss()
	l.reschedule(now)
}

func (l *line) reschedule(now int64) {
	f := l.fifo
	waiting := f.count
	for waiting > 0 && f.at(waiting-1).departs > now {
		waiting--
	}
	l.lastDepart, l.lastDue = now, 0
	if waiting > 0 {
		l.lastDue = f.at(waiting - 1).due
	}
	for i := waiting; i < f.count; i++ {
		l.schedule(now, f.at(i))
	}
}

// nextLoss returns a random number of packets that pass before the next one is lost.
func (l *line) nextLoss() float64 {
	switch {
	case l.params.Loss <= 0:
		return math.Inf(1)
	case l.params.Loss >= 1:
		return 0
	}
	return math.Floor(math.Log(1-l.rng.Float64()) / math.Log1p(-l.params.Loss))
}

// serialise returns the time that n bytes take on the line.
func (l *line) serialise(n uint32) int64 {
	if l.params.Rate == 0 {
		return 0
	}
	return int64(float64(n) * 8e9 / l.params.Rate)
}

// schedule sets when a record leaves the queue, behind all that have been scheduled before, and when
// it is due.
func (l *line) schedule(now int64, r *record) {
	r.begins = max(now, l.lastDepart)
	r.departs = r.begins + l.serialise(r.wire)
	l.lastDepart = r.departs
	r.due = r.departs + int64(l.params.Delay)
	if j := int64(l.params.Jitter); j > 0 {
		r.due += l.rng.Int64N(2*j+1) - j
	}
	r.due = max(r.due, l.lastDue)
	l.lastDue = r.due
}

// backlog returns the number of bytes that wait for serialisation.
func (l *line) backlog(now int64) int64 {
	if l.params.Rate == 0 || l.lastDepart <= now {
		return 0
	}
	return int64(float64(l.lastDepart-now) * l.params.Rate / 8e9)
}

// accept handles a vnet header and a frame that were read into the fifo's space.
func (l *line) accept(now int64, buf []byte) {
	s, err := parseSuper(buf)
	if err != nil {
		l.stats.Failed++
		return
	}
	l.stats.ReceivedPackets += uint64(s.segments)
	l.stats.ReceivedBytes += uint64(wireSize(s, len(buf)-vnetLen))

	l.dropLost(s)
	if s.segments > 1 && l.room(now) < int64(len(buf)/2) {
		// Most of the frame will be dropped. The rest of it is copied, so that it does not occupy
		// the space of the whole frame.
		l.scratch = append(l.scratch[:0], buf...)
		for _, c := range l.cuts {
			l.enqueueCopy(now, s, l.fit(now, s, c, len(buf)-vnetLen), l.scratch)
		}
		return
	}
	base := l.fifo.take(len(buf))
	for _, c := range l.cuts {
		l.enqueue(now, s, l.fit(now, s, c, len(buf)-vnetLen), buf, base)
	}
}

// wireSize returns the size on a line of all packets of a super-packet.
func wireSize(s superPacket, frameLen int) int { return frameLen + (s.segments-1)*s.header }

// dropLost fills l.cuts with the runs of packets that are not lost, in pieces as small as the rate
// and the receiver require.
func (l *line) dropLost(s superPacket) {
	l.cuts = l.cuts[:0]
	piece := l.pieceSize(s)
	for at := 0; at < s.segments; {
		run := s.segments - at
		lost := l.skip < float64(run)
		if lost {
			run = int(l.skip)
		}
		l.skip -= float64(run)
		for end := at + run; at < end; {
			n := min(piece, end-at)
			l.cuts = append(l.cuts, cut{at, n})
			at += n
		}
		if lost {
			l.stats.Lost++
			l.skip = l.nextLoss()
			at++
		}
	}
}

// pieceSize returns the largest number of segments that are passed on as one frame.
func (l *line) pieceSize(s superPacket) int {
	switch {
	case s.segments == 1 || !l.offload:
		return 1
	case l.params.Rate == 0:
		return s.segments
	}
	segment := l.serialise(uint32(s.header + s.mss))
	return max(1, int(pieceTime/max(segment, 1)))
}

// room returns the number of bytes that the direction can accept now.
func (l *line) room(now int64) int64 {
	room := maxFlight - l.flight
	if l.params.Rate > 0 {
		room = min(room, l.limit-l.backlog(now))
	}
	return room
}

// fit shortens a cut to the room that is left, and counts the other packets as dropped.
func (l *line) fit(now int64, s superPacket, c cut, frameLen int) cut {
	room := l.room(now)
	if int64(l.wire(s, c, frameLen)) <= room {
		return c
	}
	fits := 0
	if s.segments > 1 && room > 0 {
		fits = min(c.count-1, int(room)/(s.header+s.mss))
	}
	l.stats.Dropped += uint64(c.count - fits)
	c.count = fits
	return c
}

func (l *line) wire(s superPacket, c cut, frameLen int) uint32 {
	if s.segments == 1 {
		return uint32(frameLen)
	}
	from, to := s.payload(c, frameLen)
	return uint32(c.count*s.header + to - from)
}

// enqueue schedules a cut of the frame at base. A cut that is the whole frame is sent as it is,
// with its checksum completed if necessary.
func (l *line) enqueue(now int64, s superPacket, c cut, buf []byte, base uint32) {
	if c.count == 0 {
		return
	}
	r := record{packets: uint32(c.count), wire: l.wire(s, c, len(buf)-vnetLen)}
	if c.count == s.segments {
		if s.needsCsum && !l.offload {
			s.completeFrame(buf)
		}
		r.head, r.headLen = base, uint32(len(buf))
	} else {
		from, to := s.payload(c, len(buf)-vnetLen)
		n := s.writeHeader(l.fifo.rest(), buf, c, !l.offload)
		r.head, r.headLen = l.fifo.take(n), uint32(n)
		r.body, r.bodyLen = base+uint32(vnetLen+from), uint32(to-from)
	}
	l.push(now, r)
}

// enqueueCopy schedules a cut of a frame that is not in the fifo's blocks.
func (l *line) enqueueCopy(now int64, s superPacket, c cut, buf []byte) {
	if c.count == 0 {
		return
	}
	from, to := s.payload(c, len(buf)-vnetLen)
	place := l.fifo.rest()
	n := s.writeHeader(place, buf, c, !l.offload)
	n += copy(place[n:], buf[vnetLen+from:vnetLen+to])
	l.push(now, record{
		packets: uint32(c.count), wire: l.wire(s, c, len(buf)-vnetLen),
		head: l.fifo.take(n), headLen: uint32(n),
	})
}

func (l *line) push(now int64, r record) {
	r.arrived = now
	l.schedule(now, &r)
	l.fifo.push(r)
	l.flight += int64(r.wire)
	l.stats.QueueMax = max(l.stats.QueueMax, l.backlog(now))
}

// next returns the time at which the front frame is due.
func (l *line) next() int64 {
	if l.fifo.count == 0 {
		return math.MaxInt64
	}
	return l.fifo.at(0).due
}

// delivered removes the front frame once it has been written; ok reports whether writing succeeded.
func (l *line) delivered(now int64, ok bool) {
	r := l.fifo.at(0)
	l.flight -= int64(r.wire)
	if ok {
		l.stats.DeliveredPackets += uint64(r.packets)
		l.stats.DeliveredBytes += uint64(r.wire)
		l.stats.QueueSeconds += r.queued().Seconds()
	} else {
		l.stats.Failed += uint64(r.packets)
	}
	late := max(now-r.due, 0)
	l.lateSum += late
	l.lateCount++
	l.stats.LateMax = max(l.stats.LateMax, time.Duration(late))
	l.fifo.pop()
}

// cutCable drops all frames in flight, and counts them as failed.
func (l *line) cutCable(now int64) {
	for l.fifo.count > 0 {
		l.delivered(now, false)
	}
	l.lastDepart, l.lastDue = 0, 0
}

// snapshot returns the counters as they are now.
func (l *line) snapshot(now int64) Stats {
	s := l.stats
	s.QueueBytes = l.backlog(now)
	s.FlightBytes = l.flight
	if l.lateCount > 0 {
		s.LateMean = time.Duration(l.lateSum / l.lateCount)
	}
	return s
}
