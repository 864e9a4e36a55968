package replicas

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrs"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
	"github.com/sluice-net/sluice/services/mobilityfirst/namestore"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world contains the name services of some domains, at loopback addresses.
type world struct {
	t       *testing.T
	dir     string
	k       int
	slack   time.Duration
	most    uint64 // names that a domain takes that is started; zero for many
	domains []Domain
	running []*running // by domain; nil while it is away
}

// running is a name service.
type running struct {
	*Replicas
	stop func()
}

// newWorld starts domains, whose addresses no other test uses.
func newWorld(t *testing.T, test byte, domains, k int) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), k: k, slack: time.Second, running: make([]*running, domains)}
	for i := range domains {
		w.domains = append(w.domains, Domain{fmt.Sprint("domain", i), netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 77, test, byte(i + 1)}), 5001)})
	}
	for i := range domains {
		w.start(i)
	}
	return w
}

// start starts a domain's service with the state on its disk.
func (w *world) start(i int) {
	w.t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	dir := filepath.Join(w.dir, w.domains[i].Name)
	store, err := namestore.Open(namestore.Options{Dir: dir, Cache: 1 << 20, MaxNames: w.most})
	if err != nil {
		w.t.Fatal(err)
	}
	others, err := New(Options{Self: w.domains[i].Name, Domains: w.domains, K: w.k, Store: store, Dir: dir, Log: log})
	if err != nil {
		w.t.Fatal(err)
	}
	others.slack = w.slack
	server, err := gnrs.Listen(gnrs.Options{Store: store, Listen: w.domains[i].Addr, Others: others, Limits: gnrs.Limits{Lookups: 1e5, Writes: 1e4, NewNames: 1e4}, Log: log})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	var all sync.WaitGroup
	all.Go(func() {
		if err := server.Run(ctx); err != nil {
			w.t.Error(err)
		}
	})
	all.Go(func() {
		if err := others.Run(ctx); err != nil {
			w.t.Error(err)
		}
	})
	stop := sync.OnceFunc(func() {
		cancel()
		all.Wait()
		if err := store.Close(); err != nil {
			w.t.Error(err)
		}
	})
	w.running[i] = &running{others, stop}
	w.t.Cleanup(stop)
}

// leave stops a domain.
func (w *world) leave(i int) {
	w.running[i].stop()
	w.running[i] = nil
}

func owner(n int) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	seed[0], seed[1] = byte(n), byte(n>>8)
	return ed25519.NewKeyFromSeed(seed)
}

// write writes a record with a number at a domain's service.
func (w *world) write(i, who int, number uint64) frame.GUID {
	w.t.Helper()
	r, err := record.Sign(owner(who), number, time.Now().Add(time.Hour), gnrswire.AddrPortOf(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(number)}), 5028)))
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := gnrs.Dial(w.domains[i].Addr)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	for err = gnrs.ErrNoAnswer; errors.Is(err, gnrs.ErrNoAnswer); { // a disk may take a while
		err = c.Write(w.t.Context(), r)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return r.GUID()
}

// ask looks a name up at a domain's service, and returns the number of the record.
func (w *world) ask(i int, name frame.GUID) (uint64, error) {
	w.t.Helper()
	c, err := gnrs.Dial(w.domains[i].Addr)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	for {
		r, err := c.Lookup(w.t.Context(), name)
		if err == nil {
			return r.Number, nil
		}
		if !errors.Is(err, gnrs.ErrNoAnswer) { // it asks once more, as hosts do: a machine may be busy
			return 0, err
		}
	}
}

// has returns the number of a domain's own record of a name; zero for none.
func (w *world) has(i int, name frame.GUID) uint64 {
	w.t.Helper()
	b, found, err := w.running[i].Store.Get(nil, name)
	if err != nil {
		w.t.Fatal(err)
	}
	if !found {
		return 0
	}
	r, err := record.Parse(b)
	if err != nil {
		w.t.Fatal(err)
	}
	return r.Number
}

// eventually waits until a condition holds.
func (w *world) eventually(what string, is func() bool) {
	w.t.Helper()
	for began := time.Now(); !is(); pause.For(5*time.Millisecond, "it is being passed on") {
		if time.Since(began) > time.Minute {
			w.t.Fatalf("not so: %s", what)
		}
	}
}

// keepersOf returns the domains that keep a name, and the others.
func (w *world) keepersOf(name frame.GUID) (keep, others []int) {
	for i, r := range w.running {
		if r.Keeps(name) {
			keep = append(keep, i)
		} else {
			others = append(others, i)
		}
	}
	return keep, others
}

// All domains know what was written at one; K of them have it, and so does the one where it was
// written. When a move is written elsewhere, domains that have looked the name up before return the
// new record before their answers expire.
func TestAllDomainsKnow(t *testing.T) {
	w := newWorld(t, 1, 8, 3)
	for who := range 12 {
		name := w.write(who%8, who, 1)
		keep, _ := w.keepersOf(name)
		w.eventually("its domains have it", func() bool {
			for _, i := range keep {
				if w.has(i, name) != 1 {
					return false
				}
			}
			return true
		})
		for i := range w.domains {
			if n, err := w.ask(i, name); err != nil || n != 1 {
				t.Errorf("name %d, domain %d: %d, %v", who, i, n, err)
			}
			if n := w.has(i, name); n != 0 && i != who%8 && !w.running[i].Keeps(name) {
				t.Errorf("name %d, domain %d keeps it", who, i)
			}
		}
		w.write((who+3)%8, who, 2)
		for i := range w.domains {
			w.eventually("the newer one is known", func() bool { n, err := w.ask(i, name); return err == nil && n == 2 })
		}
	}
	if n, err := w.ask(0, frame.GUID{1}); !isCode(err, gnrs.NotFound) {
		t.Errorf("a name of nobody: %d, %v", n, err)
	}
}

func isCode(err error, code gnrs.Code) bool {
	refused := (*gnrs.RefusedError)(nil)
	return errors.As(err, &refused) && refused.Code == code
}

// While one of its domains is away a name is found at the others. When the domain returns it
// receives what was written meanwhile, even if the domain where it was written has restarted
// before.
func TestDomainAway(t *testing.T) {
	for name, restarts := range map[string]bool{"it comes back": false, "who was told begins anew before": true} {
		t.Run(name, func(t *testing.T) {
			test := byte(2)
			if restarts {
				test++
			}
			w := newWorld(t, test, 6, 3)
			name := w.write(0, 1, 1)
			keep, others := w.keepersOf(name)
			w.eventually("its domains have it", func() bool {
				return w.has(keep[0], name) == 1 && w.has(keep[1], name) == 1 && w.has(keep[2], name) == 1
			})
			away, told := keep[0], others[0]
			for i := range w.domains { // so that they have the answers of all
				w.eventually("the name is known", func() bool { n, err := w.ask(i, name); return err == nil && n == 1 })
			}
			w.leave(away)
			w.write(told, 1, 2)
			for i := range w.domains {
				if i != away {
					w.eventually("the newer one is known", func() bool { n, err := w.ask(i, name); return err == nil && n == 2 })
				}
			}
			if restarts {
				w.leave(told)
				w.start(told)
				for _, i := range keep[1:] { // which nobody has to remember
					w.leave(i)
					w.start(i)
				}
			}
			w.start(away)
			w.eventually("the domain has what it missed", func() bool { return w.has(away, name) == 2 })
		})
	}
}

// A domain that has lost a name that it keeps receives it again when it is asked; and if no domain
// that keeps a name answers, a domain returns what was written at itself, or that none answers.
func TestLost(t *testing.T) {
	w := newWorld(t, 4, 5, 2)
	name := w.write(0, 1, 1)
	keep, others := w.keepersOf(name)
	w.eventually("its domains have it", func() bool { return w.has(keep[0], name) == 1 && w.has(keep[1], name) == 1 })
	w.leave(keep[0])
	w.dir = t.TempDir() // its disk is lost
	w.start(keep[0])
	if n, err := w.ask(keep[0], name); err != nil || n != 1 {
		t.Errorf("asked for what it has lost: %d, %v", n, err)
	}
	w.eventually("it has it again", func() bool { return w.has(keep[0], name) == 1 })
	for _, i := range keep {
		w.leave(i)
	}
	for _, i := range others {
		n, err := w.ask(i, name)
		if told := i == 0; told && (err != nil || n != 1) || !told && !isCode(err, gnrs.Unreachable) {
			t.Errorf("domain %d, which was told: %v, says %d, %v", i, told, n, err)
		}
	}
}

// However many names a domain misses while it is away, and however few of them can be remembered,
// it receives all.
func TestMoreThanThereIsRoomFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 5, 2, 2)
	w.leave(1)
	p := w.running[0].peers[1]
	p.mu.Lock()
	p.room = 8
	p.mu.Unlock()
	var names []frame.GUID
	for who := range 40 {
		names = append(names, w.write(0, who, 1))
	}
	if n := p.count(); n != 8 {
		t.Errorf("%d names are remembered, want 8", n)
	}
	before := time.Now()
	if at := p.passedUntil(before); !at.Before(before) {
		t.Errorf("all has been passed on until %v", at)
	}
	w.start(1)
	w.eventually("the domain has all names", func() bool {
		for _, name := range names {
			if w.has(1, name) != 1 {
				return false
			}
		}
		return true
	})
	w.eventually("it is known that it has", func() bool { return p.passedUntil(time.Now()).After(before) })
}

// What has been sent is not sent again after a restart; if other domains have to keep the names, it
// is.
func TestProgress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 6, 3, 1)
	var names []frame.GUID
	kept := func() bool {
		for _, name := range names {
			keep, _ := w.keepersOf(name)
			for _, i := range keep {
				if w.has(i, name) != 1 {
					return false
				}
			}
		}
		return true
	}
	for who := range 30 {
		names = append(names, w.write(who%3, who, 1))
	}
	w.eventually("each is where it is to be", kept)
	w.eventually("it is known that they are", func() bool { // and no search of the store goes on
		for _, r := range w.running {
			for _, p := range r.all() {
				if time.Since(p.passedUntil(time.Now())) > time.Second {
					return false
				}
			}
		}
		return true
	})
	again := func() {
		for i := range w.domains {
			w.leave(i)
		}
		for i := range w.domains {
			w.start(i)
		}
	}
	pause.For(3*time.Second, "what is older than the slack is not passed on again")
	again()
	for i, r := range w.running {
		x, err := r.load()
		if err != nil || len(x.Until) != 2 {
			t.Fatalf("domain %d has passed on: %+v, %v", i, x, err)
		}
		for name, until := range x.Until {
			if age := time.Since(time.Unix(until, 0)); age > 10*time.Minute {
				t.Errorf("domain %d has passed on to %s all but of the last %v", i, name, age)
			}
		}
	}
	w.k = 2
	again()
	w.eventually("each is where it is to be now", kept)
}

// A domain that has no room for further names still receives new records of those that it has, and
// refused names are sent again.
func TestFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 7, 2, 2)
	w.leave(1)
	w.most = 1
	w.start(1)
	name := w.write(0, 0, 1)
	w.eventually("the domain has the name", func() bool { return w.has(1, name) == 1 })
	var more []frame.GUID
	for who := range 2 * maxParallel {
		more = append(more, w.write(0, 1+who, 1))
	}
	p := w.running[0].peers[1]
	w.eventually("the others are refused", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.later) == len(more)
	})
	w.write(0, 0, 2)
	w.eventually("the domain has what is new of the name", func() bool { return w.has(1, name) == 2 })
	w.leave(1)
	w.most = 0
	w.start(1)
	w.eventually("the domain has all names", func() bool {
		for _, name := range more {
			if w.has(1, name) != 1 {
				return false
			}
		}
		return true
	})
}
