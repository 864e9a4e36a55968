package host

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/rawlink"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// attacker sends arbitrary frames on a segment.
type attacker struct {
	*Interface
	port *port
}

func newAttacker(s *segment, mac byte) *attacker {
	i := s.plug(mac, 1500)
	return &attacker{i, i.Socket.(*port)}
}

func (a *attacker) say(to openflow.MAC, f frame.Frame) {
	_ = a.Send([][]byte{f.AppendTo(a.AppendHeader(nil, to, 0))})
}

// answer calls f with each received frame until the port is closed.
func (a *attacker) answer(t *testing.T, f func(from openflow.MAC, got frame.Frame)) (stop func()) {
	var done sync.WaitGroup
	done.Go(func() {
		for {
			all, err := a.Receive(t.Context())
			if err != nil {
				return
			}
			for _, x := range all {
				if got, err := frame.Parse(x.Payload); err == nil {
					f(x.From, got)
				}
			}
		}
	})
	return func() { _ = a.Close(); done.Wait() }
}

// An attacker that answers in place of a name's host receives nothing: neither with a key of its
// own, nor with an earlier hello of that host, nor with its signature at another address.
func TestSomebodyElseAnswers(t *testing.T) {
	for name, forge := range map[string]func(mine ed25519.PrivateKey, old frame.Hello, id uint64, mac [6]byte) frame.Hello{
		"with another key": func(mine ed25519.PrivateKey, old frame.Hello, id uint64, mac [6]byte) frame.Hello {
			return record.SignHello(mine, 1<<63, mac, id)
		},
		"with the name's key, and no signature": func(mine ed25519.PrivateKey, old frame.Hello, id uint64, mac [6]byte) frame.Hello {
			h := record.SignHello(mine, 1<<63, mac, id)
			h.Key = old.Key
			return h
		},
		"with an old hello": func(_ ed25519.PrivateKey, old frame.Hello, id uint64, mac [6]byte) frame.Hello {
			old.Challenge = id
			return old
		},
		"with an old hello, as it was": func(_ ed25519.PrivateKey, old frame.Hello, id uint64, mac [6]byte) frame.Hello { return old },
		"with another address": func(_ ed25519.PrivateKey, old frame.Hello, id uint64, mac [6]byte) frame.Hello {
			old.Challenge, old.MAC = id, mac
			return old
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSegment(0)
				a, _ := runHost(t, Options{Keep: time.Minute}, 10, s)
				from := attach(t, a, 1)
				x := newAttacker(s, 66)
				old := record.SignHello(newKey(2), 1, [6]byte{2, 0, 0, 0, 0, 66}, 7)
				got := 0
				stop := x.answer(t, func(to openflow.MAC, f frame.Frame) {
					switch f := f.(type) {
					case *frame.PathRequest:
						x.say(to, &frame.PathGrant{Lease: 1 << 20, Hello: forge(newKey(66), old, challenge(f), x.MAC)})
					case *frame.StreamData:
						got++
					}
				})
				defer stop()
				if err := <-send(t, from, record.NameOfOwner(newKey(2)), []byte("secret")); !errors.Is(err, ErrKept) || got > 0 {
					t.Errorf("%v, and the other one got %d frames", err, got)
				}
			})
		})
	}
}

// begin returns the first frame of a stream with a chunk of one byte.
func begin(t *testing.T, number uint64, from, to frame.GUID) *frame.StreamData {
	t.Helper()
	h := frame.RoutingHeader{ChunkSize: 1, Source: frame.Address{GUID: from}, Destination: frame.Address{GUID: to}}
	p, err := h.AppendTo([]byte{0, 0, 0, 0, 0, 0, 0, 1})
	if err != nil {
		t.Fatal(err)
	}
	return &frame.StreamData{Stream: frame.NewStream(number), Fresh: true, Payload: append(p, 1)}
}

// A stream from another name is refused, and so is one from a place without a known name.
func TestSomebodyElseSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSegment(0)
		b, _ := runHost(t, Options{}, 20, s)
		to := attach(t, b, 2)
		x := newAttacker(s, 66)
		resets := map[frame.ResetReason]int{}
		stop := x.answer(t, func(_ openflow.MAC, f frame.Frame) {
			if r, is := f.(*frame.StreamReset); is {
				resets[r.Reason]++
			}
		})
		mac := b.links[1].MAC
		chunk := func(number uint64, from frame.GUID) *frame.StreamData { return begin(t, number, from, to.Name) }
		victim := record.NameOfOwner(newKey(1))
		x.say(mac, chunk(1, victim))
		synctest.Wait()
		x.say(mac, &frame.PathRequest{ID: 1, Destination: to.Name, Hello: record.SignHello(newKey(66), 1, x.MAC, 0)})
		pause.For(time.Millisecond, "the answer is on its way")
		x.say(mac, chunk(2, victim))
		// First a stream of its own, and then a chunk in it that is not.
		mine := record.NameOfOwner(newKey(66))
		x.say(mac, chunk(3, mine))
		second := chunk(3, victim)
		second.Number = 1
		x.say(mac, second)
		pause.For(time.Second, "all answers come")
		stop()
		if resets[frame.ResetUnknown] != 2 || resets[frame.ResetInvalid] != 1 {
			t.Errorf("resets %v", resets)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, r := range to.inbox {
			if r.From != mine {
				t.Errorf("a chunk from %v", r.From)
			}
		}
	})
}

// floodFrames is the number of frames in a flood. Each of them is for something new, and there are
// more of them than a host remembers of anything.
const floodFrames = maxNeighbours + maxIncoming

// TestFlood checks that a host limits the cost of a flood of any kind of frames, and serves others
// meanwhile.
func TestFlood(t *testing.T) {
	for name, flood := range map[string]func(x *attacker, i int, mac openflow.MAC, to frame.GUID) frame.Frame{
		"names": func(x *attacker, i int, mac openflow.MAC, to frame.GUID) frame.Frame {
			return &frame.PathRequest{ID: uint64(i), Destination: to, Hello: record.SignHello(numbered(i), 1, x.MAC, 0)}
		},
		"hellos": func(x *attacker, i int, mac openflow.MAC, to frame.GUID) frame.Frame {
			return &frame.Hello{Key: [32]byte(numbered(i).Public().(ed25519.PublicKey)), MAC: x.MAC}
		},
		"streams": func(x *attacker, i int, mac openflow.MAC, to frame.GUID) frame.Frame {
			h := frame.RoutingHeader{ChunkSize: MaxChunk, Source: frame.Address{GUID: record.NameOfOwner(numbered(0))}, Destination: frame.Address{GUID: to}}
			p, _ := h.AppendTo(make([]byte, 8))
			return &frame.StreamData{Stream: frame.NewStream(uint64(i)), Fresh: true, Payload: append(p, make([]byte, 1000)...)}
		},
		"small chunks": func(x *attacker, i int, mac openflow.MAC, to frame.GUID) frame.Frame {
			h := frame.RoutingHeader{Source: frame.Address{GUID: record.NameOfOwner(numbered(0))}, Destination: frame.Address{GUID: to}}
			p, _ := h.AppendTo(binary.BigEndian.AppendUint64(nil, uint64(i)))
			return &frame.StreamData{Stream: frame.NewStream(7), Number: uint64(i - 1), Fresh: true, Payload: p}
		},
		"streams begun anew": func(x *attacker, i int, mac openflow.MAC, to frame.GUID) frame.Frame {
			h := frame.RoutingHeader{ChunkSize: MaxChunk, Source: frame.Address{GUID: record.NameOfOwner(numbered(0))}, Destination: frame.Address{GUID: to}}
			p, _ := h.AppendTo(make([]byte, 8))
			return &frame.StreamData{Stream: frame.NewStream(7) + frame.Stream(i), Fresh: true, Payload: append(p, make([]byte, 1000)...)}
		},
		"queries": func(x *attacker, i int, mac openflow.MAC, to frame.GUID) frame.Frame {
			return &frame.StreamQuery{Stream: frame.NewStream(uint64(i))}
		},
		"grants": func(x *attacker, i int, mac openflow.MAC, to frame.GUID) frame.Frame {
			return &frame.PathGrant{Hello: frame.Hello{Challenge: uint64(i)}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSegment(0)
				a, _ := runHost(t, Options{}, 10, s)
				b, _ := runHost(t, Options{}, 20, s)
				from, to := attach(t, a, 1), attach(t, b, 2)
				x := newAttacker(s, 66)
				stop := x.answer(t, func(openflow.MAC, frame.Frame) {})
				mac := b.links[1].MAC
				x.say(mac, &frame.PathRequest{ID: 1, Destination: to.Name, Hello: record.SignHello(numbered(0), 1, x.MAC, 0)})
				for i := range floodFrames {
					x.say(mac, flood(x, i+1, mac, to.Name))
					if i%50 == 0 {
						pause.For(time.Millisecond, "the flood has a rate")
					}
				}
				b.mu.Lock()
				if n := len(b.neighbours.byName); n > maxNeighbours {
					t.Errorf("%d neighbours", n)
				}
				if n := len(b.neighbours.byPlace[place{b.links[1], x.MAC}]); n > maxNamesPerPlace {
					t.Errorf("%d names at one place", n)
				}
				if used := b.Memory - b.memory.left; used > b.share()+1<<20 || len(b.incoming) > maxIncoming/8+1 || len(b.memory.waiting) > len(b.incoming) {
					t.Errorf("%d bytes, %d streams, %d starved", used, len(b.incoming), len(b.memory.waiting))
				}
				b.mu.Unlock()
				began := time.Now()
				send(t, from, to.Name, []byte("beside it"))
				for {
					r := receive(t, to)
					if r.From != from.Name {
						continue // of the flood
					}
					if string(r.Payload) != "beside it" || time.Since(began) > time.Second {
						t.Errorf("%q after %v", r.Payload, time.Since(began))
					}
					break
				}
				stop()
				pause.For(2*idleTimeout, "idle streams are forgotten")
				b.mu.Lock()
				defer b.mu.Unlock()
				if b.memory.left != b.Memory || len(b.incoming) > 0 || len(b.memory.accounts) > 0 || len(b.memory.waiting) > 0 || len(b.sentResets) > 0 {
					t.Errorf("left over: %d bytes, %d streams, %d accounts, %d starved, %d farewells", b.Memory-b.memory.left, len(b.incoming), len(b.memory.accounts), len(b.memory.waiting), len(b.sentResets))
				}
			})
		})
	}
}

// Malformed, truncated or changed frames have no effect.
func TestGarbage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSegment(0)
		a, _ := runHost(t, Options{}, 10, s)
		b, _ := runHost(t, Options{}, 20, s)
		from, to := attach(t, a, 1), attach(t, b, 2)
		var seen [][]byte
		s.watch(func(f []byte) { seen = append(seen, bytes.Clone(f)) })
		send(t, from, to.Name, random(100_000, 1))
		receive(t, to)
		synctest.Wait()
		s.watch(nil)
		draw := rand.New(rand.NewPCG(1, 1))
		for range 20_000 {
			f := bytes.Clone(seen[draw.IntN(len(seen))])
			f = f[14 : 14+draw.IntN(len(f)-13)]
			for range draw.IntN(4) {
				if len(f) > 0 {
					f[draw.IntN(min(len(f), 40))] = byte(draw.Uint32())
				}
			}
			l := []*link{a.links[1], b.links[1]}[draw.IntN(2)]
			l.handle([]rawlink.Frame{{From: openflow.MAC{2, 0, 0, 0, 0, byte(10 * (1 + draw.IntN(2)))}, Payload: f}})
		}
		send(t, from, to.Name, []byte("after it"))
		for {
			if r := receive(t, to); string(r.Payload) == "after it" {
				break
			}
		}
	})
}

func numbered(i int) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(append([]byte{byte(i), byte(i >> 8), byte(i >> 16)}, make([]byte, 29)...))
}
