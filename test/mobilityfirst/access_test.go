package mobilityfirst

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/mf1test"
)

// original runs a host of the original release on a lab's.
func original(t *testing.T, at *lab.LiveHost, guid frame.GUID) *mf1test.Host {
	t.Helper()
	i, err := opener(at)("eth0")
	if err != nil {
		t.Fatal(err)
	}
	h, _ := mf1test.Run(t, i, guid, 0)
	return h
}

// Two hosts of the original release, which know nothing of ours, exchange chunks with each other and with a host of ours, over
// Open vSwitch with a controller: they find their access router by what they broadcast. What is on the wire is looked at apart.
func TestOriginalHosts(t *testing.T) {
	begin(t)
	top := line("mforiginal")
	top.Hosts = append(top.Hosts, lab.Host{Name: "d"})
	top.Links = append(top.Links, lab.Both("d", "s3", delayline.Params{}))
	l := lab.New(t, top)
	c := control(t, l)
	dir := t.TempDir()
	one, two := frame.GUID{0: 0x11, 19: 1}, frame.GUID{0: 0x11, 19: 2}
	socket := filepath.Join(dir, "access.sock")
	daemon(t, l.Host("c"), dir, "mf", "host", "--interface", "eth0", "--socket", socket)
	args := []string{"mf", "access", "--interface", "eth0", "--socket", socket}
	names := map[frame.GUID]frame.GUID{}
	for host, guid := range map[string]frame.GUID{"a": one, "d": two} {
		key := filepath.Join(dir, host+".key")
		name, err := frame.ParseGUID(newName(t, key))
		if err != nil {
			t.Fatal(err)
		}
		names[guid] = name
		args = append(args, "--host", fmt.Sprintf("%v=%s,%v", guid, key, openflow.MAC(l.Host(host).MAC())))
	}
	attachAt(t, socket) // the host is there
	daemon(t, l.Host("c"), dir, args...)
	bt, _ := run(t, l.Host("b"))
	ours, _ := open(t, bt)

	seen := look(t, l.Host("a"))
	a, d := original(t, l.Host("a"), one), original(t, l.Host("d"), two)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := errors.Join(a.Probe(ctx), a.Associate(), d.Probe(ctx), d.Associate()); err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Ping(names[one], patience); err != nil {
		t.Fatal(err)
	}

	chunks := [][]byte{random(t, 0), random(t, 1), random(t, 1400), random(t, 100_000), random(t, 4<<20), random(t, 16<<20)}
	send := func(h *mf1test.Host, to frame.GUID) func() error {
		return func() error {
			began := time.Now()
			for i, b := range chunks {
				if err := h.Send(ctx, to, 0, b); err != nil {
					return fmt.Errorf("chunk %d: %w", i, err)
				}
			}
			t.Logf("sent to the router in %v", time.Since(began))
			return nil
		}
	}
	expect := func(h *mf1test.Host, from frame.GUID) func() error {
		return func() error {
			for i, b := range chunks {
				x, err := h.Receive(ctx)
				if err != nil || x.Routing.Source.GUID != from || !bytes.Equal(x.Payload, b) || x.Transport.Sequence != uint32(i) {
					return fmt.Errorf("chunk %d: %d bytes from %v, number %d: %w", i, len(x.Payload), x.Routing.Source.GUID, x.Transport.Sequence, err)
				}
			}
			return nil
		}
	}
	results := make(chan error, 6)
	for _, f := range []func() error{
		send(a, two), expect(d, one), send(d, ours.Name), expect(a, ours.Name),
		func() error {
			for i, b := range chunks {
				if x, err := ours.Receive(ctx); err != nil || x.From != names[two] || !bytes.Equal(x.Payload, b) || ours.Take(x) != nil {
					return fmt.Errorf("chunk %d at ours: %d bytes from %v: %w", i, len(x.Payload), x.From, err)
				}
			}
			return nil
		},
		func() error {
			became := make(chan error, len(chunks))
			for _, b := range chunks {
				if err := ours.Send(ctx, names[one], 0, b, func(err error) { became <- err }); err != nil {
					return err
				}
			}
			for range chunks {
				if err := <-became; err != nil {
					return err
				}
			}
			return nil
		},
	} {
		go func() { results <- f() }()
	}
	for range cap(results) {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}

	// What is sent to one that is away comes when it is back.
	if err := a.Deassociate(); err != nil {
		t.Fatal(err)
	}
	late := make(chan error, 1)
	if err := ours.Send(ctx, names[one], 0, []byte("late"), func(err error) { late <- err }); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-late:
		t.Fatalf("a chunk for one that is away: %v", err)
	case <-time.After(time.Second):
	}
	if err := a.Probe(ctx); err != nil {
		t.Fatal(err)
	}
	if x, err := a.Receive(ctx); err != nil || string(x.Payload) != "late" {
		t.Fatalf("%q, %v", x.Payload, err)
	}
	if err := <-late; err != nil {
		t.Error(err)
	}

	if n := c.packetIns(t); n > 1000 {
		t.Errorf("the controller was sent %d packets", n)
	}
	types, firsts := seen(ours.Name, one)
	t.Logf("frames by type: %v, first ones of chunks: %d", types, firsts)
	if types[0] < 100 || types[1] == 0 || types[2] == 0 || types[4] == 0 || firsts < len(chunks) {
		t.Error("they are not those of the original release")
	}
}

// look notes what comes to a host without a tag, by the published offsets alone, until it is asked how many frames of each type
// of the original release have come, and how many of them were the first of chunks from a source to a destination.
func look(t *testing.T, at *lab.LiveHost) (seen func(source, destination frame.GUID) (types map[uint32]int, firsts int)) {
	t.Helper()
	i, err := opener(at)("eth0")
	if err != nil {
		t.Fatal(err)
	}
	types, of := map[uint32]int{}, map[[2]frame.GUID]int{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var looking sync.WaitGroup
	looking.Go(func() {
		for {
			frames, err := i.Receive(ctx)
			if err != nil {
				return
			}
			for _, f := range frames {
				b, be := f.Payload, binary.BigEndian
				if kind := be.Uint32(b); kind <= 7 && f.Label == 0 {
					types[kind]++
					if kind == 0 && be.Uint32(b[8:]) == 0 && len(b) >= 16+60 {
						of[[2]frame.GUID{frame.GUID(b[16+12:]), frame.GUID(b[16+36:])}]++
					}
				}
			}
		}
	})
	stop := sync.OnceFunc(func() { cancel(); looking.Wait(); _ = i.Close() })
	t.Cleanup(stop)
	return func(source, destination frame.GUID) (map[uint32]int, int) {
		stop()
		return types, of[[2]frame.GUID{source, destination}]
	}
}
