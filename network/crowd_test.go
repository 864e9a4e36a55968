package network

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/openflow"
)

// talk reads a switch that has messages waiting all the time, in batches of a millisecond,
// until ctx ends, and adds the time in which it was read to read.
func talk(ctx context.Context, c *crowd, m *member, switches int, read *time.Duration) {
	const batch, messages = time.Millisecond, 1000
	for ctx.Err() == nil && c.enter(ctx, m) {
		pause.For(batch, "handling the batch takes so long")
		*read += batch
		c.leave(ctx, m, messages, switches)
	}
}

// However many switches send without pause, a switch within its guarantee is read at once, even
// after it stood still for a moment. The others share the crowd's part of the processors.
func TestCrowdKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const processors, floods, lasts = 2, 64, 20 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		c := newCrowd(processors)
		var wg sync.WaitGroup
		var read [floods]time.Duration
		for i := range read {
			wg.Go(func() { talk(ctx, c, new(member), floods+2, &read[i]) })
		}
		for _, stall := range []time.Duration{0, 500 * time.Millisecond} { // of the machine, now and then
			wg.Go(func() {
				var calm member
				for i := 1; ctx.Err() == nil; i++ {
					messages := 1
					if i%1000 == 0 {
						pause.For(stall, "the machine stands still")
						messages += int(stall / time.Millisecond)
					}
					began := time.Now()
					if !c.enter(ctx, &calm) {
						break
					}
					if waited := time.Since(began); waited > 0 {
						t.Errorf("who sends 1,000 messages a second has waited for %v", waited)
					}
					c.leave(ctx, &calm, messages, floods+2)
					pause.For(time.Millisecond, "the switch sends 1,000 messages a second")
				}
			})
		}
		wg.Wait()
		var all, least, most time.Duration
		least = lasts
		for _, r := range read {
			all, least, most = all+r, min(least, r), max(most, r)
		}
		const part = processors * lasts / crowdPart
		const before = processors*guaranteedSaved/guaranteedPart + floods*time.Millisecond // what they may send until they are the crowd
		if all < part*9/10 || all > part+before {
			t.Errorf("the crowd was read for %v of %v, want %v to %v", all, lasts, part, part+before)
		}
		if most-least > 2*time.Millisecond {
			t.Errorf("switches that send alike were read for %v to %v", least, most)
		}
	})
}

// As long as nobody else sends anything the crowd has half of the processors.
func TestCrowdAloneIsNotHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const processors, switches, lasts = 4, 16, 20 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		c := newCrowd(processors)
		var wg sync.WaitGroup
		var read [switches]time.Duration
		for i := range read {
			wg.Go(func() { talk(ctx, c, new(member), switches, &read[i]) })
		}
		wg.Wait()
		var all time.Duration
		for _, r := range read {
			all += r
		}
		if want := processors / 2 * lasts * 9 / 10; all < want {
			t.Errorf("the crowd was read for %v, want %v at least", all, want)
		}
	})
}

// Who joins the crowd is read before those that were read for long, so that one turn is
// enough to be out of it.
func TestWhoJoinsTheCrowdIsNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const floods = 64
		ctx, cancel := context.WithCancel(t.Context())
		c := newCrowd(2)
		var wg sync.WaitGroup
		var read [floods]time.Duration
		for i := range read {
			wg.Go(func() { talk(ctx, c, new(member), floods+1, &read[i]) })
		}
		pause.For(10*time.Second, "the floods have turns")
		var late member
		began := time.Now()
		c.leave(ctx, &late, 100_000, floods+1)
		if !c.enter(ctx, &late) {
			t.Fatal("it may not be read")
		}
		if waited := time.Since(began); waited > crowdPart*time.Millisecond {
			t.Errorf("it has waited for %v, want no more than for one turn", waited)
		}
		c.end(&late, time.Now())
		cancel()
		wg.Wait()
	})
}

// A member that gives up, waiting or as its turn begins, keeps nobody waiting.
func TestMembersGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(1)
		busy := func() *member {
			m := new(member)
			c.leave(t.Context(), m, 1_000_000_000, 1)
			return m
		}
		first, second, third := busy(), busy(), busy()
		if !c.enter(t.Context(), first) {
			t.Fatal("the first may not be read")
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if c.enter(ctx, second) {
				t.Error("who gave up is read")
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if !c.enter(t.Context(), third) {
				t.Error("the third may not be read")
			}
			c.end(third, time.Now())
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		c.end(first, time.Now())
		c.end(first, time.Now())
		wg.Wait()
		if c.reading != 0 || len(c.waiting) != 0 {
			t.Errorf("%d are read and %d wait, want none", c.reading, len(c.waiting))
		}
	})
}

// claimer is a handler that changes three hosts by each packet.
type claimer struct{}

func (claimer) Name() string { return "claimer" }

func (claimer) HandlePacketIn(p *PacketIn) Verdict {
	p.claims = make([]hosts.Change, 3)
	return Stop
}

// Claims about hosts are counted, those of the last packet not again.
func TestClaimsAreCounted(t *testing.T) {
	n, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	conn, peer := net.Pipe()
	defer conn.Close()
	defer peer.Close()
	s := newSwitch(n, conn)
	s.up.Store(true)
	m, err := (&openflow.PacketIn{BufferID: openflow.NoBuffer, InPort: 1, Data: make([]byte, 60)}).AppendTo(nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	n.chain = []Handler{claimer{}}
	s.packetIn(m)
	s.packetIn(m)
	n.chain = nil
	s.packetIn(m)
	if s.claims != 6 {
		t.Errorf("%d claims, want 6", s.claims)
	}
}
