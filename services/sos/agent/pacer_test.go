package agent

import (
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/services/sos/pathrate"
)

// TestTold checks that a rate from the controller is used unless the agent knows better.
func TestTold(t *testing.T) {
	p := newPacer(nil)
	p.setDeclared(agentapi.Path{Rate: 1e8})
	p.setDeclared(agentapi.Path{RTT: agentapi.Duration(time.Second)})
	if p.initialWindow(0) != unknownInitCwnd || p.bdp() != 0 {
		t.Errorf("half of what is to be known gives a window of %d", p.initialWindow(0))
	}
	if w := p.initialWindow(16); w != unknownInitCwnd/8 {
		t.Errorf("each of 16 connections over an unknown path has a window of %d segments", w)
	}
	p.setDeclared(agentapi.Path{Rate: 1e8, RTT: agentapi.Duration(100 * time.Millisecond)})
	if w := p.initialWindow(0); w < 350 || w > 450 {
		t.Errorf("100 Mbit/s, 100 ms: a window of %d segments for each of two connections", w)
	}
	p.setDeclared(agentapi.Path{Rate: 1e9, RTT: agentapi.Duration(100 * time.Millisecond)})
	if w := p.initialWindow(0); w > 450 {
		t.Errorf("what is free just after something was sent is taken: a window of %d segments", w)
	}
	p.sent = time.Now().Add(-2 * quietAfter)
	p.setDeclared(agentapi.Path{Rate: 1e9, RTT: agentapi.Duration(100 * time.Millisecond)})
	if w := p.initialWindow(0); w < 3500 {
		t.Errorf("an operator's correction is not taken: a window of %d segments", w)
	}
	if w := p.initialWindow(16); w > p.initialWindow(0)/7 {
		t.Errorf("each of 16 connections has a window of %d segments", w)
	}
	now := time.Now()
	if s, _ := p.status(netip.AddrPort{}, now); !s.Seen.IsZero() || s.Doubtful {
		t.Errorf("what nobody has seen: %+v", s)
	}
	for _, x := range []struct {
		after time.Duration
		share float64
	}{{time.Minute, 0.9}, {2 * doubtfulAfter, 0.45}} {
		p.sent = now
		p.retryRate(now.Add(x.after))
		if pace := p.control.Pace(); pace < x.share*1e9/8*agentapi.PayloadShare || pace > (x.share+0.1)*1e9/8*agentapi.PayloadShare {
			t.Errorf("%v after it was declared a rate is begun with %.0f bytes a second", x.after, pace)
		}
	}
	p.declared, p.shownAt, p.sent = time.Time{}, now, time.Time{} // the path's rate was measured
	p.setDeclared(agentapi.Path{Rate: 1e7, RTT: agentapi.Duration(100 * time.Millisecond)})
	if w := p.initialWindow(0); w < 3500 {
		t.Errorf("what is known was replaced: a window of %d segments", w)
	}
}

// TestPayload checks that the payload of segments is that of the latest ones, however many small
// segments came before.
func TestPayload(t *testing.T) {
	const full = 1448
	var p segmentPayload
	if got := p.average(full); got != full {
		t.Errorf("of one that has sent nothing: %v", got)
	}
	var at ConnStats
	send := func(segments uint32, each uint64) {
		before := at
		at.DataSent += segments
		at.BytesSent += uint64(segments) * each
		p.record(&before, &at)
	}
	at.DataSent = math.MaxUint32 - 10
	for range 100 {
		send(100, full)
	}
	if got := p.average(full); got < 0.999*full {
		t.Errorf("of full ones: %v", got)
	}
	for range 1000 {
		send(1, 16)
	}
	for range 8 { // one round trip
		send(100, full)
	}
	if got := p.average(full); got < 0.99*full {
		t.Errorf("after small ones: %v", got)
	}
}

// TestLateLook checks that a path that is in use keeps its state, however late it is examined.
func TestLateLook(t *testing.T) {
	p, now := newPacer(nil), time.Now()
	p.retryRate(now)
	before := p.control
	p.active = true
	if p.retryRate(now.Add(time.Minute)); p.control != before {
		t.Error("a late look has it begin anew")
	}
	p.active = false
	if p.retryRate(now.Add(time.Minute + quietAfter/2)); p.control != before {
		t.Error("it has rested for no longer than a look takes, and begins anew")
	}
	if p.retryRate(now.Add(4 * time.Minute)); p.control == before {
		t.Error("a path that has rested goes on as it was")
	}
}

// TestPaceOfFree checks that a path without a limit has no pace.
func TestPaceOfFree(t *testing.T) {
	p, c := newPacer(nil), &conn{}
	p.conns[c] = &pacedConn{pace: math.Inf(1)}
	if got := p.paceOf(c); got != 0 {
		t.Errorf("%d bytes a second", got)
	}
}

// steered is a transport that records the congestion controls of connections.
type steered struct {
	Transport
	set []string
}

func (s *steered) Name() string { return "tcp" }

func (s *steered) Steer(_ net.Conn, congestion string) error {
	s.set = append(s.set, congestion)
	return nil
}

// TestLongerPathKeepsBBR checks that the connections of a path that has become longer end on bbr,
// and that bbr is not restarted where it would hold them to the shorter round trip.
func TestLongerPathKeepsBBR(t *testing.T) {
	const before = 100 * time.Millisecond
	for after, want := range map[time.Duration][]string{
		before:         {"cubic", "bbr"},
		before * 7 / 5: {"cubic", "bbr"},
		before * 3:     nil,
	} {
		x := &steered{}
		a := &Agent{transports: transports{x}, congestion: congestion{long: "bbr", local: "cubic"}}
		s := &session{agent: a, params: agentapi.Params{Transport: "tcp"}}
		s.congestion.s = s
		p := newPacer(a)
		p.conns[&conn{s: s}] = &pacedConn{waiting: true}
		p.control = pathrate.New(1e7, 0, false)
		at, delivered := time.Duration(0), uint64(0)
		for at < 30*time.Second {
			at, delivered = at+20*time.Millisecond, delivered+2e5
			p.control.Update(pathrate.Sample{At: at, Delivered: delivered, RTT: after, MinRTT: before})
		}
		if p.restart(); !slices.Equal(x.set, want) {
			t.Errorf("from %v to %v: %v, want %v", before, after, x.set, want)
		}
	}
}

// TestSourceOfRate checks that an agent tells how it has learned a path's rate, in its list of paths
// and in the description of a session's start.
func TestSourceOfRate(t *testing.T) {
	p, now := newPacer(nil), time.Now()
	told := func(source agentapi.RateSource, doubtful bool, want string) {
		t.Helper()
		p.retryRate(now)
		if s, _ := p.status(netip.AddrPort{}, now); s.Source != source || s.Doubtful != doubtful {
			t.Errorf("%+v, want %q", s, source)
		}
		if text := p.describeStart(1e7, 1, ""); !strings.HasSuffix(text, want) {
			t.Errorf("%q, want %q", text, want)
		}
	}
	told("", false, "nothing is known of the path")
	p.setDeclared(agentapi.Path{Rate: 1e8, RTT: agentapi.Duration(100 * time.Millisecond)})
	told(agentapi.SourceDeclared, false, "the path carries 95.5, as declared by the controller")
	p.shownAt, p.declared = now, time.Time{}
	told(agentapi.SourceMeasured, false, "the path carries 95.5, as measured")
	r := storedPath{Peer: addrX, Port: 1, Rate: 1e7, RTT: 1e5, Segment: 1448, Seen: now.Add(-time.Minute), Loss: 0.01}
	p.restore(r, now)
	told(agentapi.SourceFile, false, "the path carries 80.0, as the file says")
	if s, _ := p.status(netip.AddrPort{}, now); s.Loss != r.Loss {
		t.Errorf("a loss of %v, want %v", s.Loss, r.Loss)
	}
	r.Doubtful = true
	p.restore(r, now)
	told(agentapi.SourceFile, true, "the path carries 80.0, as the file says, doubtful and tried at half")
}

// TestLossShare checks that the loss of a path is that of its latest bytes.
func TestLossShare(t *testing.T) {
	var l lossShare
	l.note(0, 500)
	if l.note(5e4, 500); math.Abs(l.share-0.02) > 1e-9 {
		t.Errorf("%v of the first bytes, want 0.02", l.share)
	}
	for range 100 {
		l.note(lossSpan/10, lossSpan/100)
	}
	if math.Abs(l.share-0.1) > 1e-3 {
		t.Errorf("%v after much loss, want 0.1", l.share)
	}
	if l.note(10*lossSpan, 0); l.share > 1e-9 {
		t.Errorf("%v after many bytes without loss", l.share)
	}
}
