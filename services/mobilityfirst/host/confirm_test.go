package host

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// A sender that uses a far host's address, but does not receive frames there, cannot deliver chunks
// from the names there: neither in a stream of its own, nor with a token that is invented, old, of
// another name or for another address.
func TestSentFromAnothersAddress(t *testing.T) {
	d := newDirectory()
	a, _ := runFar(t, d, "127.0.0.1", nil)
	b, _ := runFar(t, d, "127.0.0.2", nil)
	from, to := attach(t, a, 1), attach(t, b, 2)
	soon(t, "both names are published", func() bool { return len(d.where(from.Name)) == 1 && len(d.where(to.Name)) == 1 })
	became := send(t, from, to.Name, []byte("one"))
	receive(t, to)
	if err := <-became; err != nil {
		t.Fatal(err)
	}

	now, there := time.Now(), place{b.far.link, a.far.link.MAC}
	b.mu.Lock()
	defer b.mu.Unlock()
	delivered := func(session uint64, confirm frame.PathConfirm) bool {
		before := b.counters.Delivered
		confirm.Stream = frame.NewStream(session)
		b.handle(there, &confirm, false, now)
		b.handle(there, begin(t, session, from.Name, to.Name), false, now)
		return b.counters.Delivered > before
	}
	elsewhere := there
	elsewhere.mac[5]++
	for i, token := range []uint64{
		0, 1,
		b.token(there, from.Name, to.Name, now.Add(-2*tokenLifetime)),
		b.token(elsewhere, from.Name, to.Name, now),
		b.token(there, to.Name, to.Name, now),
		b.token(there, from.Name, from.Name, now),
	} {
		if delivered(uint64(i+1), frame.PathConfirm{Source: from.Name, Destination: to.Name, Token: token}) {
			t.Errorf("token %d: a chunk is delivered", i)
		}
	}
	good := frame.PathConfirm{Source: from.Name, Destination: to.Name, Token: b.token(there, from.Name, to.Name, now.Add(-tokenLifetime))}
	if !delivered(100, good) {
		t.Error("the token is right, and the chunk is not delivered")
	}
}

// A host that has forgotten a stream's confirmation receives it again, and each chunk arrives once.
func TestConfirmationForgotten(t *testing.T) {
	d := newDirectory()
	a, _ := runFar(t, d, "127.0.0.1", nil)
	b, _ := runFar(t, d, "127.0.0.2", nil)
	from, to := attach(t, a, 1), attach(t, b, 2)
	soon(t, "both names are published", func() bool { return len(d.where(from.Name)) == 1 && len(d.where(to.Name)) == 1 })
	for i := range byte(3) {
		became := send(t, from, to.Name, []byte{i})
		if r := receive(t, to); len(r.Payload) != 1 || r.Payload[0] != i {
			t.Fatalf("chunk %d: % x", i, r.Payload)
		}
		if err := <-became; err != nil {
			t.Fatal(err)
		}
		b.mu.Lock()
		for _, in := range b.incoming {
			in.close()
		}
		for _, n := range b.neighbours.byName {
			for _, s := range n.sessions {
				s.confirmed = false
			}
		}
		b.mu.Unlock()
	}
}
