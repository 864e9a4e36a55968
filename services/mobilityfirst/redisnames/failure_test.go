package redisnames

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/internal/redistest"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// A master that no longer answers has requests for its names refused, and those for others are
// answered.
func TestSilentMaster(t *testing.T) {
	t.Parallel()
	c := cluster(t, redistest.Options{At: at(1), Masters: 3})
	s := open(t, c, Options{slack: 3 * time.Second})
	there := sign(t, of(t, s, c.Nodes[1]), 1, 1)
	if err := s.Write(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	silent := sign(t, of(t, s, c.Nodes[0]), 1, 1)
	if err := syscall.Kill(c.Nodes[0].PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume := sync.OnceFunc(func() { _ = syscall.Kill(c.Nodes[0].PID(), syscall.SIGCONT) })
	defer resume()
	stop := make(chan struct{})
	var asking sync.WaitGroup
	end := sync.OnceFunc(func() { close(stop); asking.Wait() })
	defer end()
	for range 50 { // who ask for its names all the time
		asking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, _, err := s.Get(nil, silent.GUID()); err == nil || !errors.Is(err, record.ErrBusy) {
					t.Errorf("a name of a silent master: %v", err)
				}
				if err := s.Write(t.Context(), silent); err == nil || !errors.Is(err, record.ErrBusy) {
					t.Errorf("a name of a silent master, written: %v", err)
				}
				pause.For(5*time.Millisecond, "others ask as well")
			}
		})
	}
	for range 200 {
		if n := number(t, s, there.GUID()); n != 1 {
			t.Errorf("number %d", n)
		}
		if err := s.Write(t.Context(), there); err != nil {
			t.Errorf("another master: %v", err)
		}
	}
	end()
	resume()
	eventually(t, "it answers again", func() bool { return s.Write(t.Context(), silent) == nil })
}

// A write that reaches Redis after it was given up causes a notification when it is there.
func TestLateWrite(t *testing.T) {
	t.Parallel()
	c := cluster(t, redistest.Options{At: at(7), Masters: 1})
	s := open(t, c, Options{})
	told := make(chan frame.GUID, 10)
	s.Changed(func(name frame.GUID) { told <- name })
	eventually(t, "it hears", s.Hears)
	who := somebody()
	if changed, err := start(t, s, sign(t, who, 1, 1)); !changed || err != nil {
		t.Fatalf("changed %v, %v", changed, err)
	}
	if err := syscall.Kill(c.Nodes[0].PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(c.Nodes[0].PID(), syscall.SIGCONT) }()
	r := sign(t, who, 2, 1)
	if changed, err := start(t, s, r); !changed || !errors.Is(err, record.ErrBusy) {
		t.Errorf("changed %v, %v", changed, err)
	}
	if err := syscall.Kill(c.Nodes[0].PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is there", func() bool { _, _, err := s.Get(nil, r.GUID()); return err == nil && number(t, s, r.GUID()) == 2 })
	select {
	case name := <-told:
		if name != r.GUID() {
			t.Errorf("told of %v", name)
		}
	case <-time.After(time.Minute):
		t.Error("nobody is told")
	}
}

// writer writes one name again and again.
type writer struct {
	who ed25519.PrivateKey

	mu           sync.Mutex
	acknowledged uint64 // the last number
}

// run writes until it is stopped.
func (w *writer) run(t *testing.T, s *Store, stop <-chan struct{}) {
	for n := uint64(1); ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		err := s.Write(context.Background(), sign(t, w.who, n, 1))
		switch {
		case err == nil:
			w.mu.Lock()
			w.acknowledged = n
			w.mu.Unlock()
		case errors.Is(err, record.ErrBusy):
			pause.For(10*time.Millisecond, "the cluster finds a new master")
		default:
			t.Errorf("record %d: %v", n, err)
		}
	}
}

func (w *writer) last() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.acknowledged
}

// startWriters runs writers until the test ends or stop is called.
func startWriters(t *testing.T, s *Store) (all []*writer, stop func()) {
	ended := make(chan struct{})
	var running sync.WaitGroup
	stop = sync.OnceFunc(func() { close(ended); running.Wait() })
	t.Cleanup(stop)
	for range 32 {
		w := &writer{who: somebody()}
		all = append(all, w)
		running.Go(func() { w.run(t, s, ended) })
	}
	return all, stop
}

// allPast waits until each writer has a further acknowledged write.
func allPast(t *testing.T, all []*writer, by uint64) {
	t.Helper()
	var before []uint64
	for _, w := range all {
		before = append(before, w.last())
	}
	for i, w := range all {
		eventually(t, fmt.Sprintf("writer %d is acknowledged %d more", i, by), func() bool { return w.last() >= before[i]+by })
	}
}

// With one replica to wait for, every acknowledged write is there when the master was killed during
// writes and its only replica has replaced it. No other write is acknowledged before that has a
// replica again.
func TestFailover(t *testing.T) {
	t.Parallel()
	c := cluster(t, redistest.Options{At: at(4), Masters: 3, Replicas: 1})
	s := open(t, c, Options{Replicas: 1})
	all, stop := startWriters(t, s)
	allPast(t, all, 30)
	killed, replica := c.Nodes[0], c.Nodes[3].Addr.String()
	killed.Kill()
	acknowledged := map[*writer]uint64{}
	for _, w := range all {
		acknowledged[w] = w.last()
	}
	moved := 0
	for _, w := range all {
		name := record.NameOfOwner(w.who)
		eventually(t, "the name has a master", func() bool { _, _, err := s.Get(nil, name); return err == nil })
		if got := number(t, s, name); got < acknowledged[w] {
			t.Errorf("number %d is there, %d was acknowledged", got, acknowledged[w])
		}
		eventually(t, "it is known which", func() bool { master, err := s.master(name); return err == nil && master != killed.Addr.String() })
		if master, err := s.master(name); err == nil && master == replica {
			moved++
			if last := w.last(); last > number(t, s, name) || last > acknowledged[w]+1 { // one may have been under way
				t.Errorf("number %d is acknowledged, though no replica has it", last)
			}
		}
	}
	if moved == 0 {
		t.Error("no name was the killed master's")
	}
	if err := c.Restart(context.WithoutCancel(t.Context()), killed); err != nil {
		t.Fatal(err)
	}
	allPast(t, all, 1)
	stop()
	for i, w := range all {
		if got := number(t, s, record.NameOfOwner(w.who)); got < w.last() {
			t.Errorf("writer %d: number %d is there, %d was acknowledged", i, got, w.last())
		}
	}
}

// Every acknowledged write is there when all nodes were killed at once and start again.
func TestKilled(t *testing.T) {
	t.Parallel()
	c := cluster(t, redistest.Options{At: at(5), Masters: 3})
	s := open(t, c, Options{})
	all, stop := startWriters(t, s)
	allPast(t, all, 30)
	c.Kill()
	stop()
	for _, n := range c.Nodes {
		if err := c.Restart(context.WithoutCancel(t.Context()), n); err != nil {
			t.Fatal(err)
		}
	}
	for i, w := range all {
		name := record.NameOfOwner(w.who)
		eventually(t, "it is asked again", func() bool { _, _, err := s.Get(nil, name); return err == nil })
		if got := number(t, s, name); got < w.last() {
			t.Errorf("writer %d: number %d is there, %d was acknowledged", i, got, w.last())
		}
	}
}
