package network_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/networktest"
)

// again is a handler that resubmits every SYN and reports the result. It calls overtaken after the
// packet has arrived and before it is resubmitted.
type again struct {
	overtaken func()
	outcome   chan error
}

func (*again) Name() string { return "again" }

func (a *again) HandlePacketIn(p *network.PacketIn) network.Verdict {
	if !p.Headers.IsSYN() {
		return network.Continue
	}
	a.overtaken()
	a.outcome <- p.Resubmit()
	return network.Stop
}

// TestResubmit checks that a packet which reached the controller by an outdated rule is forwarded
// by the present one, and that a packet without a rule is resubmitted only a bounded number of
// times.
func TestResubmit(t *testing.T) {
	a := &again{overtaken: func() {}, outcome: make(chan error, 1000)}
	s, left := oneSwitch(t, a)
	next := func(what string, want error) {
		t.Helper()
		select {
		case err := <-a.outcome:
			if !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", what, err, want)
			}
		case <-time.After(networktest.Timeout):
			t.Fatalf("%s: the packet did not come up", what)
		}
	}
	for port := range uint32(2) {
		receive(t, s, 1+port, networktest.Frame(1, 2))
		for range 64 {
			next("a stray that the tables send up again and again", nil)
		}
		next("the stray in the end", network.ErrResubmitted)
	}

	a.overtaken = func() { leadAway(t, s) }
	receive(t, s, 1, networktest.Frame(1, 3))
	next("a packet that a rule has overtaken", nil)
	wantLeft(t, left, networktest.Frame(1, 3))
}
