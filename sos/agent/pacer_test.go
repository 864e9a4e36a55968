package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/sos/agentapi"
)

// What is shared out is all that is wanted, or all that there is; and nobody who wants more has
// less for its weight than another.
func TestMaxMinShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.Float64Range(1, 1e10).Draw(t, "whole")
		all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) demand {
			return demand{rapid.Float64Range(0, 1e10).Draw(t, "wants"), float64(rapid.IntRange(1, agentapi.MaxWeight).Draw(t, "weight"))}
		}), 1, 50).Draw(t, "all")
		share := maxMinShare(whole, all)
		given, wanted := 0.0, 0.0
		for _, d := range all {
			given += min(d.wants, share*d.weight)
			wanted += d.wants
		}
		if given > whole*1.001 || given < min(whole, wanted)*0.995 {
			t.Errorf("%.0f given of %.0f, %.0f wanted", given, whole, wanted)
		}
	})
}

// transfer carries bytes from the server to the client of a new session, and ends it.
func (r *rig) transfer(t *testing.T, bytes int64) {
	t.Helper()
	r.connect(t, agentapi.Params{})
	sent := make(chan error, 1)
	go func() {
		_, err := io.CopyN(r.server, zeros{}, bytes)
		sent <- errors.Join(err, r.server.Close())
	}()
	_ = r.client.SetDeadline(time.Now().Add(time.Minute))
	if n, err := io.Copy(io.Discard, r.client); n != bytes || err != nil {
		t.Fatalf("%d of %d bytes came: %v", n, bytes, err)
	}
	if err := errors.Join(<-sent, r.client.Close()); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
}

// zeros is an endless source.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// began is how a session's server's agent says that it began.
func (r *rig) began(t *testing.T) (text string) {
	t.Helper()
	toY := clientOf(t, r.chain.y)
	eventually(t, "the session's record", func() bool {
		all, err := toY.Sessions(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if s.ID == r.id {
				text = s.Counters.Start
			}
		}
		return text != ""
	})
	return text
}

// A session begins at the rate that another has found, or that a file remembers, with an
// initial window as large, and nothing is left of it when the agents have ended.
func TestStartsAtKnownRate(t *testing.T) {
	t.Parallel()
	memory := filepath.Join(t.TempDir(), "paths")
	n := newWAN(t, 1500, false, &delayline.Params{Rate: 100e6, Delay: 40 * time.Millisecond})
	change := func(c *Config) { c.Memory = memory + "-" + c.DataAddr.String() }
	r := rigOn(t, n, change)
	r.connect(t, agentapi.Params{})
	if text := r.began(t); !strings.Contains(text, "nothing is known") {
		t.Errorf("the first session began with %q", text)
	}
	r.transfer(t, 30<<20)
	r.transfer(t, 1<<20)
	r.connect(t, agentapi.Params{})
	knows(t, r.began(t))
	paths, err := clientOf(t, r.chain.y).Paths(shortContext(t))
	if err != nil || len(paths) != 1 || paths[0].Peer != r.agentX || paths[0].Rate == 0 || time.Duration(paths[0].RTT) < 70*time.Millisecond {
		t.Errorf("paths: %+v, %v", paths, err)
	}
	routes := startTableOf(t, r.chain.y, r.agentY)
	if !strings.Contains(routes, r.agentX.String()) || !strings.Contains(routes, "initcwnd") {
		t.Errorf("routes for the start: %q", routes)
	}
	r.y.stop(syscall.SIGKILL)
	r.x.stop(syscall.SIGTERM)
	if left := startTableOf(t, r.chain.x, r.agentX); left != "" {
		t.Errorf("left of an agent that was stopped: %q", left)
	}
	again := rigOn(t, n, change)
	if left := startTableOf(t, r.chain.y, r.agentY); strings.Contains(left, "initcwnd") || strings.Count(left, "\n") > 0 {
		t.Errorf("after kill -9 and a new start: %q", left)
	}
	again.transfer(t, 30<<20)
	again.y.stop(syscall.SIGTERM)
	again.x.stop(syscall.SIGTERM)
	for ns, own := range map[string]netip.Addr{n.x: n.agentX, n.y: n.agentY} {
		if left := startTableOf(t, ns, own); left != "" {
			t.Errorf("left in %s: %q", ns, left)
		}
	}
	third := rigOn(t, n, change)
	third.connect(t, agentapi.Params{})
	knows(t, third.began(t))
}

// knows checks that a session has begun at a rate that was known, and no faster.
func knows(t *testing.T, began string) {
	t.Helper()
	var pace, rate float64
	if _, err := fmt.Sscanf(began, "%f Mbit/s: the path carries %f", &pace, &rate); err != nil || rate == 0 || pace > rate {
		t.Errorf("a session on a known path began with %q (%v)", began, err)
	}
}

// startTableOf is what is in the routing table for starts from an address, and of rules for starts.
func startTableOf(t *testing.T, ns string, own netip.Addr) string {
	t.Helper()
	return strings.TrimSpace(tableOf(ns, own) + startRulesOf(t, ns))
}

// tableOf are the routes for starts from an address.
func tableOf(ns string, own netip.Addr) string {
	args := []string{"-n", ns, "route", "show", "table", strconv.Itoa(startTable(own))}
	if own.Is6() {
		args = append([]string{"-6"}, args...)
	}
	out, _ := exec.Command("ip", args...).Output() // fails while there is no such table
	return string(out)
}

// startRulesOf are the rules that lead to such tables.
func startRulesOf(t *testing.T, ns string) string {
	t.Helper()
	out, err := exec.Command("ip", "-n", ns, "rule", "show", "priority", strconv.Itoa(startPriority)).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// Sessions of a path share it by their weights: of two that begin together, the one of three
// times the weight carries more. Which share exactly each is given is TestMaxMinShare's subject.
func TestWeights(t *testing.T) {
	t.Parallel()
	n := newWAN(t, 1500, false, &delayline.Params{Rate: 100e6, Delay: 40 * time.Millisecond})
	r := rigOn(t, n, nil)
	const heavy, firstBytes, bytes = 3, 20 << 20, 20 << 20
	type arrived struct{ session, bytes int }
	arrives := make(chan arrived)
	deadline := time.Now().Add(2 * time.Minute)
	for i, weight := range []int{1, heavy} {
		r.connect(t, agentapi.Params{Weight: weight})
		client, server := r.client, r.server
		_ = errors.Join(client.SetDeadline(deadline), server.SetDeadline(deadline))
		t.Cleanup(func() { client.Close(); server.Close() })
		go func() { _, _ = io.Copy(server, zeros{}) }()
		go func() {
			for b := make([]byte, 64<<10); ; {
				n, err := client.Read(b)
				select {
				case arrives <- arrived{i, n}:
				case <-t.Context().Done():
					return
				}
				if err != nil {
					return
				}
			}
		}()
	}
	var all int
	var later [2]int
	for all < firstBytes+bytes {
		a := <-arrives
		if a.bytes == 0 {
			t.Fatalf("session %d has ended after %d bytes", a.session, all)
		}
		if all += a.bytes; all > firstBytes {
			later[a.session] += a.bytes
		}
	}
	if later[1] <= later[0] {
		t.Errorf("a session of weight %d has carried %d bytes, and one of weight 1 %d", heavy, later[1], later[0])
	}
}

// What the controller knows counts where nobody here knows better.
func TestTold(t *testing.T) {
	p := newPacer(nil)
	p.told(agentapi.Path{Rate: 1e8})
	p.told(agentapi.Path{RTT: agentapi.Duration(time.Second)})
	if p.window(0) != 0 || p.inFlight() != 0 {
		t.Errorf("half of what is to be known gives a window of %d", p.window(0))
	}
	p.told(agentapi.Path{Rate: 1e8, RTT: agentapi.Duration(100 * time.Millisecond)})
	if w := p.window(0); w < 350 || w > 450 {
		t.Errorf("100 Mbit/s, 100 ms: a window of %d segments for each of two connections", w)
	}
	p.told(agentapi.Path{Rate: 1e9, RTT: agentapi.Duration(100 * time.Millisecond)})
	if w := p.window(0); w > 450 {
		t.Errorf("what is free just after something was sent is taken: a window of %d segments", w)
	}
	p.sent = time.Now().Add(-2 * quietAfter)
	p.told(agentapi.Path{Rate: 1e9, RTT: agentapi.Duration(100 * time.Millisecond)})
	if w := p.window(0); w < 3500 {
		t.Errorf("an operator's correction is not taken: a window of %d segments", w)
	}
	if w := p.window(16); w > p.window(0)/7 {
		t.Errorf("each of 16 connections has a window of %d segments", w)
	}
	now := time.Now()
	if s, _ := p.status(netip.AddrPort{}, now); !s.Seen.IsZero() || s.Doubtful {
		t.Errorf("what nobody has seen: %+v", s)
	}
	for after, share := range map[time.Duration]float64{time.Minute: 0.9, 2 * doubtfulAfter: 0.45} {
		p.sent = now
		p.renew(now.Add(after))
		if pace := p.control.Pace(); pace < share*1e9/8*payloadShare || pace > (share+0.1)*1e9/8*payloadShare {
			t.Errorf("%v after it was declared a rate is begun with %.0f bytes a second", after, pace)
		}
	}
	p.declared, p.known, p.sent = time.Time{}, now, time.Time{} // it has shown itself
	p.told(agentapi.Path{Rate: 1e7, RTT: agentapi.Duration(100 * time.Millisecond)})
	if w := p.window(0); w < 3500 {
		t.Errorf("what is known was replaced: a window of %d segments", w)
	}
}

// What segments carry is what they have carried lately, however many small ones there have been.
func TestPayload(t *testing.T) {
	const full = 1448
	var p payload
	if got := p.average(full); got != full {
		t.Errorf("of one that has sent nothing: %v", got)
	}
	var at LinkStats
	send := func(segments uint32, each uint64) {
		before := at
		at.DataSent += segments
		at.BytesSent += uint64(segments) * each
		p.sent(&before, &at)
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
	for range 8 { // a round trip
		send(100, full)
	}
	if got := p.average(full); got < 0.99*full {
		t.Errorf("after small ones: %v", got)
	}
}

// A path on which somebody sends goes on as it is, however late it is looked at.
func TestLateLook(t *testing.T) {
	p, now := newPacer(nil), time.Now()
	p.renew(now)
	before := p.control
	p.active = true
	if p.renew(now.Add(time.Minute)); p.control != before {
		t.Error("a late look has it begin anew")
	}
	p.active = false
	if p.renew(now.Add(time.Minute + quietAfter/2)); p.control != before {
		t.Error("it has rested for no longer than a look takes, and begins anew")
	}
	if p.renew(now.Add(4 * time.Minute)); p.control == before {
		t.Error("a path that has rested goes on as it was")
	}
}

// What nothing holds has no pace.
func TestPaceOfFree(t *testing.T) {
	p, c := newPacer(nil), &conn{}
	p.conns[c] = &paced{pace: math.Inf(1)}
	if got := p.paceOf(c); got != 0 {
		t.Errorf("%d bytes a second", got)
	}
}
