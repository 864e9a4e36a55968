package agent

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// TestEndsUnderLoss checks that sessions end in order, with every byte, while connections between
// the agents die all the time, and sometimes all at once.
func TestEndsUnderLoss(t *testing.T) {
	for _, tls := range []bool{false, true} {
		p := newPair(t, withTLS(t, tls))
		for i := range 50 {
			f := p.open(agentapi.Params{Connections: 3, ChunkBytes: 4 << 10, TLS: tls})
			bounded(f)
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for {
					d := time.NewTimer(time.Duration(rand.IntN(3000)) * time.Microsecond)
					select {
					case <-stop:
						return
					case <-d.C:
					}
					if s := p.x.session(f.id); s != nil {
						for _, c := range *s.conns.Load() {
							if rand.IntN(2) == 0 {
								resetNow(c.net)
							}
						}
					}
				}
			}()
			exchange(t, f, int64(rand.IntN(400000)), int64(rand.IntN(400000)))
			rx, ry := f.ended(p.x), f.ended(p.y)
			close(stop)
			<-stopped
			if rx.Reason != agentapi.ReasonClosed || ry.Reason != agentapi.ReasonClosed {
				t.Errorf("session %d, tls=%v: x %v %v, y %v %v, %d connections lost", i, tls, rx.Reason, rx.Detail, ry.Reason, ry.Detail, rx.Counters.ConnsLost)
			}
			if t.Failed() {
				return
			}
		}
	}
}

// TestSessionLastsUntilDelivered checks that a session lasts until its client has acknowledged the
// end. A client that has closed its side and reads slowly must still get the data that its agent
// holds, and without a session the switches would forward its packets elsewhere.
func TestSessionLastsUntilDelivered(t *testing.T) {
	p := newPair(t, nil)
	f := p.open(agentapi.Params{})
	if err := f.client.SetReadBuffer(256 << 10); err != nil {
		t.Fatal(err)
	}
	const size = 1 << 20
	if err := f.client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := sendAll(f.server, size, 1); err != nil {
		t.Fatal(err)
	}
	if err := f.server.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	s := p.x.session(f.id)
	eventually(t, "the client's agent has passed all of it on", func() bool { return s.in.done() && s.describe().Phase == agentapi.PhaseClosing })
	if f.ended(p.y).Reason != agentapi.ReasonClosed {
		t.Error("the server's agent has not closed the session")
	}
	if p.x.session(f.id) == nil {
		t.Fatal("the session is over while the client has not read")
	}
	if _, n, err := sum(f.client); n != size || err != nil {
		t.Errorf("the client reads %d bytes of %d, %v", n, size, err)
	}
	if r := f.ended(p.x); r.Reason != agentapi.ReasonClosed {
		t.Errorf("%s %s", r.Reason, r.Detail)
	}
}
