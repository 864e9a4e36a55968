package gnrs

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
	"github.com/sluice-net/sluice/services/mobilityfirst/namestore"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// slow are other domains that answer when they are let, and say that they know nothing.
type slow struct {
	let     chan struct{}
	asked   atomic.Int64
	mu      sync.Mutex
	written []frame.GUID
}

func (*slow) Keeps(frame.GUID) bool    { return false }
func (*slow) Count() int               { return 1 }
func (*slow) IsPeer(a netip.Addr) bool { return a == netip.MustParseAddr("192.0.2.99") }
func (*slow) Changed(func(frame.GUID)) {}

func (o *slow) Written(name frame.GUID, brought bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if brought {
		return
	}
	o.written = append(o.written, name)
}

func (o *slow) Lookup(ctx context.Context, _ frame.GUID) (*record.Record, time.Time, error) {
	o.asked.Add(1)
	select {
	case <-o.let:
		return nil, time.Time{}, &RefusedError{gnrswire.Lookup, NotFound}
	case <-ctx.Done():
		return nil, time.Time{}, fmt.Errorf("%w: %w", ErrNoAnswer, ctx.Err())
	}
}

// However much one address asks for that others know, others are asked for so much at one time and no more, and there is
// room for other addresses. Who wants no others asked is answered at once.
func TestManyAskForOthersNames(t *testing.T) {
	store, err := namestore.Open(namestore.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, proven := range []bool{true, false} {
		t.Run(fmt.Sprint("proven=", proven), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { manyAsk(t, store, proven) })
		})
	}
}

// manyAsk asks from many addresses, which the requests prove or not. Addresses that are not proven
// leave half of the room.
func manyAsk(t *testing.T, store *namestore.Store, proven bool) {
	names, perName := room(maxForwardedNames, source{proven: proven}), room(maxQuestionsPerName, source{proven: proven})
	o := &slow{let: make(chan struct{})}
	s, err := Listen(Options{Store: store, Listen: netip.MustParseAddrPort("127.0.0.1:0"), Limits: Limits{Lookups: 1e6, Writes: 1000, NewNames: 1000}, Others: o})
	if err != nil {
		t.Fatal(err)
	}
	defer s.conn.Close()
	defer s.forwarder.tasks.Stop()
	now := time.Now()
	ask := func(from string, name int, options ...gnrswire.Option) (code Code, waits bool) {
		t.Helper()
		if proven {
			options = append(options, proof(s, from))
		}
		b, err := (&gnrswire.Message{Kind: gnrswire.Lookup, GUID: frame.GUID{1, byte(name >> 16), byte(name >> 8), byte(name)}, Options: options}).AppendTo(nil)
		if err != nil {
			t.Fatal(err)
		}
		_, a := s.answer(nil, netip.MustParseAddrPort(from), b, now)
		if len(a) == 0 {
			return 0, true
		}
		m, err := gnrswire.Parse(a)
		if err != nil {
			t.Fatal(err)
		}
		return Code(m.Code), false
	}
	waiting := 0
	for name := range 2 * maxQuestionsPerSource {
		code, waits := ask("198.51.100.1:9", name)
		if waits {
			waiting++
		} else if code != Busy {
			t.Fatalf("question %d: %v", name, code)
		}
	}
	if waiting != maxQuestionsPerSource {
		t.Errorf("%d questions of one address wait, want %d", waiting, maxQuestionsPerSource)
	}
	if code, waits := ask("198.51.100.2:9", 0); !waits {
		t.Errorf("another address: %v", code)
	}
	for i := range 2 * maxQuestionsPerName {
		ask(fmt.Sprintf("198.51.%d.%d:9", 101+i/250, i%250), 0)
	}
	for from := 3; from < 9; from++ {
		for name := range maxQuestionsPerSource {
			ask(fmt.Sprintf("198.51.100.%d:9", from), from<<16|name)
		}
	}
	s.forwarder.mu.Lock()
	if n := len(s.forwarder.byName[frame.GUID{1}].questions); n != perName {
		t.Errorf("%d wait for one name, want %d", n, perName)
	}
	if n := len(s.forwarder.byName); n != names {
		t.Errorf("%d names are asked for, want %d", n, names)
	}
	s.forwarder.mu.Unlock()
	alone := gnrswire.Option{Kind: gnrswire.Recursive, Value: []byte(optionNo)}
	if code, waits := ask("198.51.100.2:9", 1, alone); waits || code != NotFound {
		t.Errorf("who wants no others asked: %v, waits %v", code, waits)
	}
	close(o.let)
	synctest.Wait()
	s.forwarder.mu.Lock()
	defer s.forwarder.mu.Unlock()
	if len(s.forwarder.byName)+len(s.forwarder.perSource) != 0 || o.asked.Load() != int64(names) {
		t.Errorf("at the end %d names and %d addresses are left; others were asked %d times", len(s.forwarder.byName), len(s.forwarder.perSource), o.asked.Load())
	}
}

// What an owner writes is told to others, unless one of them has brought it; they may bring as many new names as they like.
func TestOthersAreToldOnce(t *testing.T) {
	o := &slow{let: make(chan struct{})}
	s := serveWith(t, "127.0.0.1:0", Limits{Lookups: 1000, Writes: 1000, NewNames: 10}, o)
	write := func(from string, who byte, alone bool) {
		t.Helper()
		m := &gnrswire.Message{Kind: gnrswire.Update}
		sign(t, who, 1, time.Hour).Into(m)
		m.Options = append(m.Options, proof(s, from))
		if alone {
			m.Options = append(m.Options, gnrswire.Option{Kind: gnrswire.Recursive, Value: []byte(optionNo)})
		}
		b, err := m.AppendTo(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, a := s.answer(nil, netip.MustParseAddrPort(from), b, time.Now()); len(a) > 0 {
			t.Errorf("the name of %d is refused", who)
		}
	}
	write("198.51.100.1:9", 1, false)
	for who := byte(2); who < 60; who++ {
		write("192.0.2.99:9", who, true)
	}
	for began := time.Now(); s.Counters().Answers[OK] < 59; {
		if time.Since(began) > time.Minute {
			t.Fatalf("answers: %v", s.Counters().Answers)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.written) != 1 || o.written[0] != nameOf(1) {
		t.Errorf("others are told of %d names", len(o.written))
	}
}
