package gnrs

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
	"github.com/sluice-net/sluice/services/mobilityfirst/namestore"
)

// distant is a shared store that answers when the test lets it.
type distant struct {
	*namestore.Store
	let     chan struct{}
	hears   bool
	changed func(frame.GUID)
}

func (d *distant) Get(b []byte, name frame.GUID) ([]byte, bool, error) {
	<-d.let
	return d.Store.Get(b, name)
}

func (d *distant) Changed(f func(frame.GUID)) { d.changed = f }
func (d *distant) Hears() bool                { return d.hears }

// listenOn returns a server that does not run, on a distant store.
func listenOn(t *testing.T, d *distant) *Server {
	t.Helper()
	store, err := namestore.Open(namestore.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	d.Store = store
	s, err := Listen(Options{Store: d, Listen: netip.MustParseAddrPort("127.0.0.1:0"), Limits: Limits{Lookups: 1e6, Writes: 1e6, NewNames: 1e6}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.storeQueue.tasks.Stop()
		if err := s.conn.Close(); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// proof returns the option with which a request proves its source address.
func proof(s *Server, from string) gnrswire.Option {
	return CookieOption(s.cookies.cookie(netip.MustParseAddrPort(from).Addr(), time.Now()))
}

// asking sends a request to a server that proves its address, and returns its immediate answer, or
// nil.
func asking(t *testing.T, s *Server, from string, m *gnrswire.Message) *gnrswire.Message {
	t.Helper()
	proven := *m
	proven.Options = append(slices.Clip(m.Options), proof(s, from))
	return claiming(t, s, from, &proven)
}

// claiming sends a request to a server as it is, and returns its immediate answer, or nil.
func claiming(t *testing.T, s *Server, from string, m *gnrswire.Message) *gnrswire.Message {
	t.Helper()
	b, err := m.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, a := s.answer(nil, netip.MustParseAddrPort(from), b, time.Now())
	if len(a) == 0 {
		return nil
	}
	answer, err := gnrswire.Parse(a)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// However many requests one address sends to a store that does not answer, the waiting ones are
// limited, per address and in total, and all of them are answered in the end.
func TestManyWaitForStore(t *testing.T) {
	d := &distant{let: make(chan struct{})}
	s := listenOn(t, d)
	update := &gnrswire.Message{Kind: gnrswire.Update}
	sign(t, 1, 1, time.Hour).Into(update)
	waiting := 0
	for n := range maxWaiting + 2*maxWaitingPerSource {
		from := fmt.Sprintf("198.51.100.%d:9", 1+n/(2*maxWaitingPerSource))
		if n >= 2*maxWaitingPerSource { // others, each no more than it may
			from = fmt.Sprintf("198.51.101.%d:9", n/maxWaitingPerSource)
		}
		m := &gnrswire.Message{Kind: gnrswire.Lookup, GUID: frame.GUID{byte(n), byte(n >> 8)}}
		if n%2 == 1 {
			m = update
		}
		switch a := asking(t, s, from, m); {
		case a == nil:
			waiting++
		case Code(a.Code) != Busy:
			t.Fatalf("question %d: %v", n, Code(a.Code))
		}
		if n == 2*maxWaitingPerSource-1 && waiting != maxWaitingPerSource {
			t.Errorf("%d questions of one address wait, want %d", waiting, maxWaitingPerSource)
		}
	}
	if waiting != maxWaiting {
		t.Errorf("%d questions wait, want %d", waiting, maxWaiting)
	}
	close(d.let)
	for n := range waiting {
		select {
		case <-s.delayed:
		case <-time.After(time.Minute):
			t.Fatalf("%d of %d are answered", n, waiting)
		}
	}
	s.storeQueue.tasks.Stop()
	if s.storeQueue.total != 0 || len(s.storeQueue.perSource) != 0 {
		t.Errorf("%d questions wait yet, of %d addresses", s.storeQueue.total, len(s.storeQueue.perSource))
	}
}

// A client is promised notifications only while the store reports the changes of others.
func TestDeafStore(t *testing.T) {
	let := make(chan struct{})
	close(let)
	d := &distant{let: let}
	s := listenOn(t, d)
	for _, d.hears = range []bool{false, true} {
		asking(t, s, "198.51.100.1:9", &gnrswire.Message{Kind: gnrswire.Lookup, GUID: frame.GUID{1}, Options: []gnrswire.Option{{Kind: optionWatch}}})
		x := <-s.delayed
		m, err := gnrswire.Parse(x.b)
		if err != nil {
			t.Fatal(err)
		}
		if promised := hasOption(m, optionWatch, 0); promised != d.hears {
			t.Errorf("hears %v: promised %v", d.hears, promised)
		}
	}
	if d.changed(frame.GUID{1}); len(s.watches.changed) != 1 {
		t.Error("nobody is told what another has written")
	}
}
