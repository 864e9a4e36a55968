package agent

import (
	"math"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/services/sos/pathrate"
)

// longPath is a transport whose connections have a long round trip, and on which paces can be set.
type longPath struct{ Transport }

func (longPath) Name() string                 { return "tcp" }
func (longPath) Pace(net.Conn, float64) error { return nil }
func (longPath) Stats(net.Conn) (ConnStats, error) {
	return ConnStats{MinRTT: 100 * time.Millisecond}, nil
}

// fairRig is a path that carries 800 Mbit/s, and sessions of which each has two connections.
type fairRig struct {
	a *Agent
	p *pacer
}

func newFairRig() *fairRig {
	a := &Agent{transports: transports{longPath{}}}
	p := newPacer(a)
	p.control = pathrate.New(1e8, 0, false)
	p.sent, p.shownAt, p.rtt, p.running = time.Now(), time.Now(), 100*time.Millisecond, true // run is not started
	return &fairRig{a, p}
}

// session adds a session of a client whose connections have more to send than they may, unless rate
// is above zero: then each of them has that much to send, in bytes a second.
func (r *fairRig) session(client string, rate float64, params agentapi.Params) *session {
	params.Transport = "tcp"
	s := &session{agent: r.a, params: params, req: agentapi.PrepareRequest{Client: netip.MustParseAddrPort(client)}, out: &source{}}
	for range 2 {
		c := &conn{s: s}
		r.p.add(c)
		own := r.p.conns[c]
		own.waiting, own.rate = rate == 0, rate
		if rate == 0 {
			own.rate = 1e8
		}
	}
	return s
}

// pace returns the sum of the paces of a session's connections, in bytes a second.
func (r *fairRig) pace(s *session) (sum float64) {
	for c, own := range r.p.conns {
		if c.s == s {
			sum += own.pace
		}
	}
	return sum
}

// want checks the pace of a session, in shares of the path's pace.
func (r *fairRig) want(t *testing.T, what string, s *session, share float64) {
	t.Helper()
	if got := r.pace(s) / r.p.control.Pace(); math.Abs(got-share) > 0.02*share {
		t.Errorf("%s: %.4f of the path's pace, want %.4f", what, got, share)
	}
}

// TestFairBySession checks that without the fairness of clients, a client with ten sessions gets ten
// times as much as a client with one.
func TestFairBySession(t *testing.T) {
	for _, fairness := range []agentapi.Fairness{"", agentapi.FairnessSession} {
		r := newFairRig()
		params := agentapi.Params{Fairness: fairness}
		var many []*session
		for range 10 {
			many = append(many, r.session("10.0.0.1:1000", 0, params))
		}
		one := r.session("10.0.0.2:1000", 0, params)
		r.want(t, "the latest before a division", one, 1.0/11)
		r.p.divide(time.Now())
		for _, s := range append(many, one) {
			r.want(t, "each session", s, 1.0/11)
		}
	}
}

// TestFairByClient checks that a client with ten sessions gets as much as a client with one, from the
// first byte, and that its sessions share that by weight.
func TestFairByClient(t *testing.T) {
	r := newFairRig()
	params := agentapi.Params{Fairness: agentapi.FairnessClient}
	var many []*session
	for range 10 {
		many = append(many, r.session("10.0.0.1:1000", 0, params))
	}
	r.want(t, "the tenth session of one client", many[9], 1.0/10)
	r.p.divide(time.Now())
	one := r.session("10.0.0.2:1000", 0, params)
	r.want(t, "the first session of another client, before a division", one, 1.0/2)
	eleventh := r.session("10.0.0.1:1001", 0, params)
	r.want(t, "one more of the first client, before a division", eleventh, 1.0/22)
	r.p.divide(time.Now())
	r.want(t, "the client with one session", one, 1.0/2)
	for _, s := range append(many, eleventh) {
		r.want(t, "each of eleven", s, 1.0/22)
	}
	if got := r.p.sending; got != 12 {
		t.Errorf("%d sessions send, want 12", got)
	}

	heavy := r.session("10.0.0.2:1001", 0, agentapi.Params{Fairness: agentapi.FairnessClient, Weight: 3})
	r.want(t, "a heavy session of the second client, before a division", heavy, 3.0/4*3/4)
	r.p.divide(time.Now())
	r.want(t, "the heavy session", heavy, 3.0/4*3/4)
	r.want(t, "the light one of the same client", one, 3.0/4*1/4)
	r.want(t, "the other client's", many[0], 1.0/4/11)
}

// TestFairnessTogether checks that sessions that count each for itself and clients that count as one
// share a path: each of them is one among all.
func TestFairnessTogether(t *testing.T) {
	r := newFairRig()
	client := agentapi.Params{Fairness: agentapi.FairnessClient}
	a, b := r.session("10.0.0.1:1000", 0, client), r.session("10.0.0.1:1001", 0, client)
	alone := r.session("10.0.0.1:1002", 0, agentapi.Params{})
	other := r.session("10.0.0.2:1000", 0, client)
	r.p.divide(time.Now())
	for s, share := range map[*session]float64{a: 1.0 / 6, b: 1.0 / 6, alone: 1.0 / 3, other: 1.0 / 3} {
		r.want(t, s.req.Client.String(), s, share)
	}
}

// TestFairByClientLeavesRest checks that what a client does not use goes to the others, and what a
// session of a client does not use first to its client's others.
func TestFairByClientLeavesRest(t *testing.T) {
	r := newFairRig()
	params := agentapi.Params{Fairness: agentapi.FairnessClient}
	pace := r.p.control.Pace()
	little := 0.04 * pace / 1.25 // two connections of such a rate are expected to need 0.08 of the pace
	r.session("10.0.0.1:1000", little, params)
	much := r.session("10.0.0.1:1001", 0, params)
	other := r.session("10.0.0.2:1000", 0, params)
	r.p.divide(time.Now())
	r.want(t, "the session beside one that sends little", much, 0.5-0.08)
	r.want(t, "the other client's session", other, 0.5)

	r = newFairRig()
	r.session("10.0.0.1:1000", little, params)
	a, b := r.session("10.0.0.2:1000", 0, params), r.session("10.0.0.2:1001", 0, params)
	r.p.divide(time.Now())
	for _, s := range []*session{a, b} {
		r.want(t, "a session of the client that sends much", s, (1-0.08)/2)
	}
}

// TestStartNamesFairness checks that the description of a session's start says how it shares the path.
func TestStartNamesFairness(t *testing.T) {
	r := newFairRig()
	params := agentapi.Params{Fairness: agentapi.FairnessClient}
	r.session("10.0.0.1:1000", 0, params)
	s := r.session("10.0.0.2:1000", 0, params)
	if got, want := *s.start.Load(), "380.0 Mbit/s: the path carries 800.0, as measured, shared by 2 sessions, fairly by client"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
