package testbed

import (
	"testing"
	"time"
)

// sendAll records n messages, one each millisecond from 1 s on.
func sendAll(d *deliveries, n int) {
	for i := range n {
		d.next(sentAt(i))
	}
}

func sentAt(i int) int64 { return int64(time.Second) + int64(i)*int64(time.Millisecond) }

// delay is how long a message takes in these tests.
const delay = int64(3 * time.Millisecond)

func TestStreamLog(t *testing.T) {
	d := newDeliveries()
	sendAll(d, 100)
	for i := range 100 {
		switch {
		case i >= 20 && i < 30: // messages 20 to 29 are lost
		case i == 40: // message 40 is overtaken by 41
			d.arrived(41, sentAt(41)+delay)
			d.arrived(40, sentAt(41)+delay+1)
		case i == 41:
		case i == 50: // it arrives twice
			d.arrived(50, sentAt(50)+delay)
			d.arrived(50, sentAt(50)+delay+1)
		default:
			d.arrived(i, sentAt(i)+delay)
		}
	}
	d.arrived(1000, sentAt(99)) // This message was not sent.
	l := d.finish()
	all := l.All()
	want := StreamReport{Sent: 100, Received: 90, Lost: 10, Doubled: 1, Reordered: 1, Gap: 10 * time.Millisecond, GapAt: time.Unix(0, sentAt(19)+delay)}
	if all != want {
		t.Errorf("the whole stream: %+v, want %+v", all, want)
	}
	later := l.Between(time.Unix(0, sentAt(35)), time.Unix(0, sentAt(60)))
	if later.Sent != 25 || later.Lost != 0 || later.Doubled != 1 || later.Reordered != 1 || later.Gap > 2*time.Millisecond {
		t.Errorf("from 35 to 60: %+v", later)
	}
	if sent, received := d.count(); sent != 100 || received != 90 {
		t.Errorf("count is %d, %d", sent, received)
	}
}

// TestLastLate checks that the last late arrival is found, also if it is that of an overtaken message,
// and that lost messages do not count.
func TestLastLate(t *testing.T) {
	d := newDeliveries()
	sendAll(d, 100)
	for i := range 100 {
		switch {
		case i == 30: // it arrives after message 40
			d.arrived(30, sentAt(40)+2*delay)
		case i == 35: // it is lost
		default:
			d.arrived(i, sentAt(i)+delay)
		}
	}
	l := d.finish()
	from, to, limit := time.Unix(0, sentAt(0)), time.Unix(0, sentAt(100)), time.Duration(delay)
	if got, want := l.LastLate(from, to, limit), time.Unix(0, sentAt(40)+2*delay); !got.Equal(want) {
		t.Errorf("LastLate(%v) = %v, want %v", limit, got, want)
	}
	if got := l.LastLate(time.Unix(0, sentAt(31)), to, limit); !got.IsZero() {
		t.Errorf("LastLate of messages sent later = %v, want the zero time", got)
	}
}

// TestGapIsBeyondTheSendersSpacing checks that a sender that was late makes no gap, and that
// packets that wait on their way make one.
func TestGapIsBeyondTheSendersSpacing(t *testing.T) {
	late := newDeliveries()
	for _, at := range []int64{0, 1, 2, 52, 53} {
		at = int64(time.Second) + at*int64(time.Millisecond)
		number, _ := late.next(at)
		late.arrived(number, at+delay)
	}
	if gap := late.finish().All().Gap; gap > time.Millisecond {
		t.Errorf("a late sender makes a gap of %v", gap)
	}
	held := newDeliveries()
	sendAll(held, 60)
	for i := range 60 {
		at := sentAt(max(i, 50))
		if i == 0 {
			at = sentAt(0)
		}
		held.arrived(i, at+delay)
	}
	if r := held.finish().All(); r.Gap < 45*time.Millisecond || r.Lost != 0 {
		t.Errorf("packets that were held for 50 ms: %+v", r)
	}
}

// TestGapWithoutEnd checks that messages that never arrive make a gap that lasts to the end.
func TestGapWithoutEnd(t *testing.T) {
	d := newDeliveries()
	now := time.Now().UnixNano()
	for i := range 10 {
		d.next(now - int64(time.Second) + int64(i)*int64(time.Millisecond))
	}
	d.arrived(0, now-int64(time.Second)+delay)
	if r := d.finish().All(); r.Gap < 900*time.Millisecond || r.Lost != 9 {
		t.Errorf("a stream that dies: %+v", r)
	}
	silent := newDeliveries()
	silent.next(now - int64(time.Second))
	if r := silent.finish().All(); r.Gap < 900*time.Millisecond || r.Lost != 1 {
		t.Errorf("a stream that never lived: %+v", r)
	}
	if r := newDeliveries().finish().All(); r != (StreamReport{GapAt: time.Unix(0, 0)}) {
		t.Errorf("an empty stream: %+v", r)
	}
}

func TestRecordIsBounded(t *testing.T) {
	d := newDeliveries()
	d.messages = make([]message, maxMessages)
	if _, ok := d.next(1); ok {
		t.Error("a message too many is taken")
	}
}
