package sos

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/sos"
)

// killSize is the size of the download during which a controller is killed, in four parts.
const (
	killSize = 4 * killPart
	killPart = 4 << 20
)

// TestControllerKilled kills the controller in mid-transfer and leaves it dead: the
// transfer completes without it. The next controller removes the rules that nobody could
// remove meanwhile, and rewrites none of the others.
func TestControllerKilled(t *testing.T) {
	t.Parallel()
	p := newProcessWorld(t, lab.WAN("soskilla", wan))
	next := p.inParts(80, 1, killPart, killSize-killPart)
	d := p.fetch(80)
	p.live()
	d.reach(killPart)
	p.kill()
	next()
	d.wantContent(1)
	for _, s := range p.switches() {
		if len(p.serviceRules(s)) == 0 {
			t.Errorf("session rules of %s went without a controller", s)
		}
	}
	rules := p.allRules()
	at := time.Now()
	maps.DeleteFunc(rules, func(_ string, e flowEntry) bool { return e.ofSession() })
	p.start()
	p.ready()
	p.clean()
	p.wantUntouched(rules, at)
	p.wantLedgerOwns()
	p.serve(81, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	p.echo(81)
	p.clean()
	past := p.sessions("past") // the latest first
	if len(past) != 2 || past[0].Setup.Total == 0 {
		t.Fatalf("a connection after the restart is not carried: %+v", past)
	}
	if d := past[1]; d.BytesDown != killSize || !strings.HasPrefix(d.How, "closed") || d.ClientAgent != "x" || d.ServerAgent != "y" {
		t.Errorf("the download that ended without a controller: %+v", d)
	}
}

// TestControllerKilledAndRestarted kills the controller in mid-transfer and starts it
// again: it finds the session and its rules, rewrites none of them, and removes them at the
// end of the transfer.
func TestControllerKilledAndRestarted(t *testing.T) {
	t.Parallel()
	p := newProcessWorld(t, lab.WAN("soskillb", wan))
	next := p.inParts(80, 1, killPart, killPart, killPart, killPart)
	d := p.fetch(80)
	before := p.live()
	d.reach(killPart)
	p.eventually("rules are confirmed", func() bool { return p.ledgerOwns() == nil })
	p.kill()
	rules := p.allRules()
	at := time.Now()
	next()
	d.reach(2 * killPart) // without a controller
	next()
	p.start()
	p.ready()

	if after := p.live(); after.ID != before.ID || after.Client != before.Client || after.ClientAgent != before.ClientAgent || after.ServerAgent != before.ServerAgent {
		t.Errorf("after the restart the session is %+v, was %+v", after, before)
	}
	p.wantLedgerOwns()
	p.wantUntouched(rules, at)
	if !slices.ContainsFunc(slices.Collect(maps.Values(rules)), flowEntry.ofSession) {
		t.Error("the session had no rules")
	}
	next()
	d.wantContent(1)
	p.clean()
	p.wantLedgerOwns()
	if past := p.sessions("past"); len(past) != 1 || past[0].ID != before.ID || past[0].How != "closed" || past[0].BytesDown != killSize {
		t.Errorf("the session's record after its end: %+v", past)
	}
}

// fetched is a download in progress.
type fetched struct {
	p      *processWorld
	read   atomic.Int64
	result chan error
	sum    string
}

// fetch connects to a port and reads to the end.
func (p *processWorld) fetch(port uint16) *fetched {
	p.t.Helper()
	c := p.mustDial(port)
	_ = c.SetReadDeadline(time.Now().Add(3 * testTimeout))
	d := &fetched{p: p, result: make(chan error, 1)}
	h := sha256.New()
	go func() {
		_, err := io.Copy(io.MultiWriter(h, d), c)
		_ = c.Close()
		d.sum = fmt.Sprintf("%x", h.Sum(nil))
		d.result <- err
	}()
	return d
}

// Write counts the bytes.
func (d *fetched) Write(b []byte) (int, error) {
	d.read.Add(int64(len(b)))
	return len(b), nil
}

// reach waits until n bytes have arrived.
func (d *fetched) reach(n int64) {
	d.p.t.Helper()
	d.p.eventually(fmt.Sprintf("%d bytes have arrived", n), func() bool { return d.read.Load() >= n })
}

// wantContent waits for the end and checks that nothing is missing or wrong.
func (d *fetched) wantContent(seed uint64) {
	d.p.t.Helper()
	err := <-d.result // the connection has a deadline
	if n := d.read.Load(); err != nil || n != killSize || d.sum != sum(seed, killSize) {
		d.p.t.Errorf("read %d bytes (%.12s), %v; want %d (%.12s)", n, d.sum, err, int64(killSize), sum(seed, killSize))
	}
}

// flowEntry is a rule as a switch lists it.
type flowEntry struct {
	cookie  rule.Cookie
	age     time.Duration
	packets uint64
	idle    bool   // goes by itself
	leased  bool   // is renewed, and goes when nobody does
	text    string // priority, match and actions
}

// sessionPriorities lists the priorities of rules that carry a session, and of those
// between agents, as switches list them.
var sessionPriorities = []string{
	fmt.Sprintf("%d,", network.StageRewrite.Base()+rule.RewriteSession), fmt.Sprintf("%d,", network.StageRoute.Base()+rule.RouteAgents),
}

// ofSession reports whether a rule carries a session or forwards between agents.
func (e flowEntry) ofSession() bool {
	return slices.ContainsFunc(sessionPriorities, func(p string) bool { return strings.HasPrefix(e.text, p) })
}

// allRules returns the controller's rules in all switches, by switch, cookie and text.
func (p *processWorld) allRules() map[string]flowEntry {
	p.t.Helper()
	all := map[string]flowEntry{}
	for _, s := range p.switches() {
		out, err := p.lab.Switch(s).Ofctl(context.WithoutCancel(p.t.Context()), "dump-flows", "--no-names")
		if err != nil {
			p.t.Fatal(err)
		}
		for line := range strings.Lines(out) {
			if e, ok := p.parseEntry(strings.TrimSpace(line)); ok {
				all[fmt.Sprintf("%s %v %s", s, e.cookie, e.text)] = e
			}
		}
	}
	return all
}

// parseEntry parses a line of ovs-ofctl dump-flows.
func (p *processWorld) parseEntry(line string) (flowEntry, bool) {
	p.t.Helper()
	if !strings.HasPrefix(line, "cookie=") {
		return flowEntry{}, false
	}
	var e flowEntry
	head, text, _ := strings.Cut(line, "priority=")
	for _, word := range strings.Split(head, ", ") {
		name, value, _ := strings.Cut(strings.Trim(word, ", "), "=")
		var err error
		switch name {
		case "cookie":
			var n uint64
			n, err = strconv.ParseUint(value, 0, 64)
			e.cookie = rule.Cookie(n)
		case "duration":
			e.age, err = time.ParseDuration(value)
		case "n_packets":
			e.packets, err = strconv.ParseUint(value, 10, 64)
		case "idle_timeout":
			e.idle = true
		case "hard_timeout":
			e.leased = true
		}
		if err != nil {
			p.t.Fatalf("rule %q: %v", line, err)
		}
	}
	e.text = text
	return e, e.cookie.Ours()
}

// wantUntouched checks that every rule of before, except leased ones, is still the same
// rule: a rule that was rewritten would have restarted its counters.
func (p *processWorld) wantUntouched(before map[string]flowEntry, at time.Time) {
	p.t.Helper()
	elapsed := time.Since(at)
	now := p.allRules()
	for key, b := range before {
		a, ok := now[key]
		switch {
		case b.leased:
		case !ok && !b.idle:
			p.t.Errorf("the restart has removed or changed %s", key)
		case ok && (a.age < b.age+elapsed-100*time.Millisecond || a.packets < b.packets):
			p.t.Errorf("the restart has written again: %s\nage %v, %d packets, after %v: age %v, %d packets", key, b.age, b.packets, elapsed, a.age, a.packets)
		}
	}
	p.t.Logf("%d rules were to stay, %d are there", len(before), len(now))
}

// ledgerOwns compares the rules in the switches with those that the controller reports as
// its own, by cookie.
func (p *processWorld) ledgerOwns() error {
	owners := map[uint16]string{}
	ledger := map[string]bool{}
	dpids := map[string]string{}
	for _, s := range p.switches() {
		dpids[openflow.DatapathID(p.lab.Switch(s).DPID()).String()] = s
	}
	var rules []struct {
		Switch, Owner, Cookie, Name string
		Confirmed                   bool
	}
	if !p.try("network/rules", &rules) {
		return fmt.Errorf("the controller does not answer")
	}
	for _, r := range rules {
		n, err := strconv.ParseUint(r.Cookie, 0, 64)
		if err != nil {
			return err
		}
		owners[rule.Cookie(n).Owner()] = r.Owner
		ledger[dpids[r.Switch]+" "+r.Cookie] = true
		if r.Owner == sos.Name && !r.Confirmed {
			return fmt.Errorf("rule %s of %s in %s is not confirmed", r.Name, r.Owner, r.Switch)
		}
	}
	installed := map[string]bool{}
	for key, e := range p.allRules() {
		id := strings.Fields(key)[0] + " " + e.cookie.String()
		installed[id] = true
		if !ledger[id] {
			return fmt.Errorf("nobody owns %s (owner %q)", key, owners[e.cookie.Owner()])
		}
	}
	for _, r := range rules {
		if id := dpids[r.Switch] + " " + r.Cookie; r.Owner == sos.Name && !installed[id] {
			return fmt.Errorf("rule %s of %s is not in the switch (%s)", r.Name, r.Owner, id)
		}
	}
	return nil
}

// wantLedgerOwns waits until the controller owns every rule of its own in the switches, and
// the switches have every rule of SOS that it reports.
func (p *processWorld) wantLedgerOwns() {
	p.t.Helper()
	var err error
	deadline := time.Now().Add(testTimeout)
	p.within(testTimeout+time.Second, "ledger and switches agree", func() bool {
		err = p.ledgerOwns()
		return err == nil || time.Now().After(deadline)
	})
	if err != nil {
		p.t.Error(err)
	}
}
