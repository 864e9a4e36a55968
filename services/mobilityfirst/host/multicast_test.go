package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// sendToAll sends a multicast chunk and returns its result.
func sendToAll(t *testing.T, e *Endpoint, to frame.GUID, payload []byte) <-chan error {
	t.Helper()
	became := make(chan error, 1)
	if err := e.Send(t.Context(), to, frame.Multicast, payload, func(err error) { became <- err }); err != nil {
		t.Error(err)
		became <- err
	}
	return became
}

// numberedChunk returns a chunk of a size that contains its number.
func numberedChunk(i, size int) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(i)), random(size, uint64(i))...)
}

// listener takes over all chunks for a name at one host.
type listener struct {
	host *Host
	stop func()
	got  []int // the numbers of chunks, in the order in which they have come
}

// listen runs a host that has the name of a key, and takes over chunks until it is stopped.
func listen(t *testing.T, seed, mac byte, on ...*segment) *listener {
	t.Helper()
	l := &listener{}
	l.host, l.stop = runHost(t, Options{}, mac, on...)
	e := attach(t, l.host, seed)
	go func() {
		for {
			r, err := e.Receive(context.WithoutCancel(t.Context()))
			if err != nil {
				return
			}
			n := int(binary.BigEndian.Uint32(r.Payload))
			if !bytes.Equal(r.Payload, numberedChunk(n, len(r.Payload)-4)) || r.Service != frame.Multicast {
				t.Errorf("chunk %d is another one, with services %v", n, r.Service)
			}
			l.got = append(l.got, n)
			r.Take()
		}
	}()
	return l
}

// run reports whether exactly the numbers in [from, to) were received, once and in order.
func (l *listener) run(from, to int) bool {
	if len(l.got) != to-from {
		return false
	}
	for i, n := range l.got {
		if n != from+i {
			return false
		}
	}
	return true
}

// Chunks arrive at each host that has the name, in order and once, whatever is lost; the payload is
// stored once for all.
func TestMulticast(t *testing.T) {
	for _, loss := range []float64{0, 0.05} {
		synctest.Test(t, func(t *testing.T) {
			s := newSegment(loss)
			a, _ := runHost(t, Options{}, 10, s)
			from := attach(t, a, 1)
			var members []*listener
			for i := range byte(5) {
				members = append(members, listen(t, 2, 20+i, s))
			}
			const chunks, size = 40, 100_000
			var became []<-chan error
			for i := range chunks {
				became = append(became, sendToAll(t, from, endpointName(2), numberedChunk(i, size)))
			}
			a.mu.Lock()
			if held := 4*a.Memory - a.queueLeft; held > chunks*(size+4+6*overhead) {
				t.Errorf("%d bytes are held for %d chunks", held, chunks)
			}
			a.mu.Unlock()
			for i, c := range became {
				if err := <-c; err != nil {
					t.Errorf("loss %v: chunk %d: %v", loss, i, err)
				}
			}
			all := 0
			for _, l := range members {
				if l.run(0, chunks) {
					all++
				}
			}
			if all < 4 || loss == 0 && all < 5 {
				t.Errorf("loss %v: %d of 5 have all", loss, all)
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.queueLeft != 4*a.Memory || from.queued != 0 {
				t.Errorf("loss %v: %d bytes are left, %d of the name's", loss, 4*a.Memory-a.queueLeft, from.queued)
			}
		})
	}
}

// A multicast chunk is kept while there is no member, and sent to hosts that come.
func TestMulticastToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSegment(0)
		a, _ := runHost(t, Options{Keep: time.Minute}, 10, s)
		from, began := attach(t, a, 1), time.Now()
		if err := <-sendToAll(t, from, endpointName(2), numberedChunk(0, 1)); !errors.Is(err, ErrKept) || time.Since(began) < time.Minute || time.Since(began) > time.Minute+time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		later := sendToAll(t, from, endpointName(2), numberedChunk(0, 1))
		pause.For(30*time.Second, "nobody is there yet")
		l := listen(t, 2, 20, s)
		if err := <-later; err != nil || !l.run(0, 1) {
			t.Errorf("%v, and %v has come", err, l.got)
		}
	})
}

// A dead member is dropped after a while, and the others get their chunks; senders are told how
// many have not taken which. A host that comes gets what is sent from then on.
func TestMulticastMembersComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSegment(0)
		a, _ := runHost(t, Options{}, 10, s)
		from := attach(t, a, 1)
		dies, stays, other := listen(t, 2, 20, s), listen(t, 2, 21, s), listen(t, 2, 22, s)
		to := endpointName(2)
		for i := range 10 {
			if err := <-sendToAll(t, from, to, numberedChunk(i, 1000)); err != nil {
				t.Error(err)
			}
		}
		s.mu.Lock()
		s.edit = func(b []byte) []byte {
			if b[5] == 20 || b[11] == 20 { // it dies without a word
				return nil
			}
			return b
		}
		s.mu.Unlock()
		began := time.Now()
		err := <-sendToAll(t, from, to, numberedChunk(10, 1000))
		if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "1 of 3 hosts") || time.Since(began) > lostAfter+time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		dies.stop()
		comes := listen(t, 2, 23, s)
		pause.For(time.Second, "it says hello")
		for i := 11; i < 20; i++ {
			if err := <-sendToAll(t, from, to, numberedChunk(i, 1000)); err != nil {
				t.Error(err)
			}
		}
		if !dies.run(0, 10) || !stays.run(0, 20) || !other.run(0, 20) || !comes.run(11, 20) {
			t.Errorf("%v, %v, %v and %v have come", dies.got, stays.got, other.got, comes.got)
		}
	})
}

// A host with several interfaces is one member, even when it continues on another interface.
func TestMulticastToInterfaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, other := newSegment(0), newSegment(0)
		a, _ := runHost(t, Options{}, 10, s, other)
		from, to := attach(t, a, 1), endpointName(2)
		moves, stays := listen(t, 2, 20, s, other), listen(t, 2, 30, s)
		for i := range 100 {
			if i == 50 {
				a.mu.Lock()
				m := a.multicasts[streamKey{from: from.Name, to: to}]
				if len(m.members) != 2 {
					t.Errorf("%d members", len(m.members))
				}
				l := m.member(moves.host.instance, place{}).path.link
				a.mu.Unlock()
				at := map[bool]*segment{true: s, false: other}[l == a.links[1]]
				at.mu.Lock()
				at.edit = func(b []byte) []byte {
					if b[5]/10 == 2 || b[11]/10 == 2 {
						return nil
					}
					return b
				}
				at.mu.Unlock()
			}
			if err := <-sendToAll(t, from, to, numberedChunk(i, 3000)); err != nil {
				t.Errorf("chunk %d: %v", i, err)
			}
		}
		if !moves.run(0, 100) || !stays.run(0, 100) {
			t.Errorf("%v and %v have come", moves.got, stays.got)
		}
	})
}

// Whatever hosts come, leave, die and return, and whatever is lost: each receives chunks in order
// and once, a host that is always present receives all, and no state is left.
func TestMulticastProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		loss := rapid.SampledFrom([]float64{0, 0, 0.01, 0.05}).Draw(rt, "loss")
		events := rapid.SliceOfN(rapid.SampledFrom([]string{"send", "send", "send", "join", "die", "wait"}), 5, 25).Draw(rt, "events")
		synctest.Test(t, func(t *testing.T) {
			s := newSegment(loss)
			a, _ := runHost(t, Options{}, 10, s)
			from, to := attach(t, a, 1), endpointName(2)
			stays := listen(t, 2, 20, s)
			all, mac, sent := []*listener{stays}, byte(21), 0
			var became []<-chan error
			more := func() {
				for range 5 {
					became = append(became, sendToAll(t, from, to, numberedChunk(sent, 5000)))
					sent++
				}
			}
			more()
			for _, what := range events {
				switch what {
				case "send":
					more()
				case "join":
					all = append(all, listen(t, 2, mac, s))
					mac++
				case "die":
					if last := all[len(all)-1]; last != stays {
						last.stop()
					}
				case "wait":
					pause.For(time.Duration(sent%7)*time.Second, "time passes")
				}
			}
			for i, c := range became {
				if err := <-c; err != nil && !errors.Is(err, ErrLost) {
					t.Errorf("chunk %d: %v", i, err)
				}
			}
			synctest.Wait()
			if !slices.IsSorted(stays.got) || len(slices.Compact(slices.Clone(stays.got))) != len(stays.got) || loss == 0 && !stays.run(0, sent) { // questions may be lost, too
				t.Errorf("loss %v, %v: who is there all the time got %v of %d", loss, events, stays.got, sent)
			}
			for i, l := range all[1:] {
				if len(l.got) > 0 && !l.run(l.got[0], l.got[0]+len(l.got)) {
					t.Errorf("member %d got %v", i, l.got)
				}
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.queueLeft != 4*a.Memory || from.queued != 0 {
				t.Errorf("%d bytes are left, %d of the name's", 4*a.Memory-a.queueLeft, from.queued)
			}
		})
	})
}

// A multicast chunk cannot have another service, and is refused before any part of it is queued.
func TestMulticastWithOthers(t *testing.T) {
	from, err := New(Options{}).Attach(newKey(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []frame.Service{frame.Anycast, frame.Multihoming, frame.DelayTolerant, frame.Compute, frame.ContentRequest} {
		if err := from.TrySend(endpointName(2), frame.Multicast|other, nil, func(error) { t.Error("done") }); !errors.Is(err, ErrService) {
			t.Errorf("%#x: %v", other, err)
		}
	}
}

// Multicast chunks that a name has sent before it was closed are delivered, even if it was closed
// before the members were known.
func TestMulticastClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSegment(0)
		a, _ := runHost(t, Options{Keep: time.Minute}, 10, s)
		from, began := attach(t, a, 1), time.Now()
		members := []*listener{listen(t, 2, 20, s), listen(t, 2, 21, s)}
		became := sendToAll(t, from, endpointName(2), numberedChunk(0, 1000))
		pause.For(gatherTime/2, "the members have answered, and are not settled")
		from.Close()
		if err := <-became; err != nil || time.Since(began) > 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		for i, l := range members {
			if !l.run(0, 1) {
				t.Errorf("member %d has %v", i, l.got)
			}
		}
	})
}

// A host that comes when the first of many chunks is about to be given up receives those for which
// there is time, and is not dropped.
func TestMulticastLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSegment(0)
		const keep = 10 * time.Second
		a, _ := runHost(t, Options{Keep: keep}, 10, s)
		from := attach(t, a, 1)
		var became []<-chan error
		const chunks = 100
		for i := range chunks {
			became = append(became, sendToAll(t, from, endpointName(2), numberedChunk(i, 1000)))
			pause.For(keep/chunks, "one after the other")
		}
		slow := time.Now().Add(2 * gatherTime)
		s.mu.Lock()
		s.edit = func(b []byte) []byte {
			if len(b) > 500 && time.Now().Before(slow) { // what carries chunks: the first that it is given are late
				return nil
			}
			return b
		}
		s.mu.Unlock()
		listen(t, 2, 20, s)
		lost := 0
		for _, c := range became {
			if <-c != nil {
				lost++
			}
		}
		if lost > chunks/5 {
			t.Errorf("%d of %d are lost", lost, chunks)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, m := range a.multicasts {
			if len(m.barred) > 0 {
				t.Error("the host is left out")
			}
		}
	})
}
