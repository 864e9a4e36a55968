package host

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// Strangers that claim a name receive no multicast chunks. Of a thousand hosts with its key, some
// are members; those that acknowledge nothing delay the others for a while, and senders are told.
func TestMulticastHostile(t *testing.T) {
	for name, c := range map[string]struct {
		key     byte
		hosts   int
		members int
		anew    bool // say each time that they have begun anew
	}{
		"strangers":                      {66, 10, 1, false},
		"members that never acknowledge": {2, 10, 11, false},
		"and begin anew":                 {2, 10, 11, true},
		"a thousand of them":             {2, 1000, MaxMembers, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSegment(0)
				a, _ := runHost(t, Options{}, 10, s)
				from, to := attach(t, a, 1), endpointName(2)
				good := listen(t, 2, 20, s)
				x, frames, key := newAttacker(s, 66), 0, newKey(c.key)
				if err := <-sendToAll(t, from, to, numberedChunk(0, 1000)); err != nil {
					t.Error(err)
				}
				pause.For(2*membersValidFor, "it is asked anew")
				stop := x.answer(t, func(to openflow.MAC, f frame.Frame) {
					q, is := f.(*frame.PathRequest)
					if !is || to == x.MAC {
						return
					}
					for i := range c.hosts {
						mac := openflow.MAC{2, 9, 0, 0, byte(i >> 8), byte(i)}
						instance := uint64(i)
						if c.anew {
							instance = rand.Uint64()
						}
						g := &frame.PathGrant{Lease: 30_000, Instance: instance, Hello: record.SignHello(key, 1<<62, mac, challenge(q))}
						if c.key != 2 {
							g.Hello.Key = record.SignHello(newKey(2), 1, mac, 0).Key
						}
						b := x.AppendHeader(nil, to, 0)
						copy(b[6:], mac[:])
						_ = x.Send([][]byte{g.AppendTo(b)})
					}
				})
				defer stop()
				s.watch(func(b []byte) {
					if b[1] == 9 {
						frames++
					}
				})
				began := time.Now()
				err := <-sendToAll(t, from, to, numberedChunk(1, 1000))
				a.mu.Lock()
				most := a.multicasts[streamKey{from: from.Name, to: to}].lastMember
				a.mu.Unlock()
				if took := time.Since(began); took > lostAfter+2*time.Second {
					t.Errorf("it has taken %v", took)
				}
				if c.key != 2 {
					if err != nil || frames > 0 {
						t.Errorf("%v, and %d frames to strangers", err, frames)
					}
				} else if want := fmt.Sprintf("of %d hosts", c.members); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %s", err, want)
				}
				if int(most) > 1+c.members {
					t.Errorf("%d have been members", most)
				}
				if c.hosts <= MaxMembers {
					began = time.Now()
					if err := <-sendToAll(t, from, to, numberedChunk(2, 1000)); err != nil || time.Since(began) > time.Second {
						t.Errorf("the next chunk: %v after %v", err, time.Since(began))
					}
					if !good.run(0, 3) {
						t.Errorf("%v has come", good.got)
					}
				}
			})
		})
	}
}

// A multicast that was idle for a while keeps its paths when it sends again.
func TestMulticastAfterRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSegment(0)
		a, _ := runHost(t, Options{}, 10, s)
		from, to := attach(t, a, 1), endpointName(2)
		listen(t, 2, 20, s)
		if err := <-sendToAll(t, from, to, numberedChunk(0, 1000)); err != nil {
			t.Fatal(err)
		}
		a.mu.Lock()
		m := a.multicasts[streamKey{from: from.Name, to: to}]
		m.schedule(time.Now()) // as answers do that come when nothing is wanted
		a.mu.Unlock()
		became := sendToAll(t, from, to, numberedChunk(1, 1000))
		a.mu.Lock()
		if !m.settled || !m.hasWork() || !m.timer.Stop() {
			t.Error("nothing is due")
		}
		m.schedule(time.Now())
		a.mu.Unlock()
		if err := <-became; err != nil {
			t.Error(err)
		}
	})
}

// A name has a limited number of multicast destinations at one time; finished ones make room.
func TestManyMulticasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keep = 10 * time.Second
		a, _ := runHost(t, Options{Keep: keep}, 10, newSegment(0))
		from := attach(t, a, 1)
		for i := range maxMulticastsPerName {
			sendToAll(t, from, frame.GUID{1, byte(i)}, []byte{1})
		}
		if err := from.TrySend(frame.GUID{2}, frame.Multicast, []byte{1}, func(error) {}); !errors.Is(err, ErrTooMany) {
			t.Errorf("%v beyond %d names", err, maxMulticastsPerName)
		}
		if err := attach(t, a, 2).TrySend(frame.GUID{2}, frame.Multicast, []byte{1}, func(error) {}); err != nil {
			t.Errorf("another name: %v", err)
		}
		pause.For(2*keep, "they are given up")
		for i := range 2 * maxMulticastsPerName {
			if err := <-sendToAll(t, from, frame.GUID{3, byte(i)}, []byte{1}); !errors.Is(err, ErrKept) {
				t.Fatalf("name %d: %v", i, err)
			}
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if n := len(a.multicasts); n > maxMulticastsPerName+1 {
			t.Errorf("%d are remembered", n)
		}
	})
}

// Hellos of the name from everywhere cause one request a second.
func TestMulticastHellos(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSegment(0)
		a, _ := runHost(t, Options{}, 10, s)
		from := attach(t, a, 1)
		listen(t, 2, 20, s)
		if err := <-sendToAll(t, from, endpointName(2), numberedChunk(0, 1000)); err != nil {
			t.Fatal(err)
		}
		var asked atomic.Int64
		s.watch(func(b []byte) {
			f, _ := frame.Parse(b[14:])
			if q, is := f.(*frame.PathRequest); is && b[11] == 10 && q.Destination == endpointName(2) {
				asked.Add(1)
			}
		})
		x := newAttacker(s, 66)
		const seconds = 5
		for range seconds {
			for i := range 1000 {
				mac := openflow.MAC{2, 9, 0, 0, byte(i >> 8), byte(i)}
				hello := record.SignHello(newKey(2), 1, mac, 0)
				b := x.AppendHeader(nil, openflow.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 0)
				copy(b[6:], mac[:])
				_ = x.Send([][]byte{hello.AppendTo(b)})
			}
			pause.For(time.Second, "hellos go on")
		}
		if n := asked.Load(); n == 0 || n > 2*seconds {
			t.Errorf("it was asked %d times in %d s", n, seconds)
		}
	})
}
