package sos

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strconv"
	"testing"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/store"
)

// TestHistoryOutlivesTheController starts another controller after sessions have ended and one
// connection went directly, and checks that it reports the same about them.
func TestHistoryOutlivesTheController(t *testing.T) {
	b := newBench(t)
	_, held := b.syn(hostA)
	if got := b.fate(held); got != "released" {
		t.Fatalf("the packet was %s", got)
	}
	id := b.x.only(t)
	b.x.finish(id, agentapi.ReasonClosed)
	b.y.finish(id, agentapi.ReasonClosed)
	b.clean()
	b.x.mu.Lock()
	b.x.prepare = func(agentapi.PrepareRequest) error { return &control.Problem{Code: control.CodeFull} }
	b.x.mu.Unlock()
	_, held = b.syn(netip.AddrPortFrom(hostA.Addr(), 777))
	if got := b.fate(held); got != "forwarded" {
		t.Fatalf("the second packet was %s", got)
	}
	b.eventually("both are in the history", func() bool { return len(b.past()) == 2 })
	before, err := json.Marshal(b.past())
	if err != nil {
		t.Fatal(err)
	}
	totals := b.service.stats().Totals
	for range 2 {
		b.stop()
		b.start()
		if after, err := json.Marshal(b.past()); err != nil || string(after) != string(before) {
			t.Errorf("after the restart %s (%v), before %s", after, err, before)
		}
		if s := b.service.stats(); s.Totals != totals || totals.Carried != 1 || totals.Direct != 1 || totals.BytesDown != 1000 {
			t.Errorf("totals after the restart %+v, before %+v", s.Totals, totals)
		}
	}
}

// TestHistoryIsBounded writes more pages than the history holds.
func TestHistoryIsBounded(t *testing.T) {
	b := newBench(t)
	const limit = 2 * maxPage
	if _, err := b.service.selection.setConfig(t.Context(), ConfigChange{History: new(limit)}); err != nil {
		t.Fatal(err)
	}
	for i := range 5*maxPage + 10 {
		b.service.mu.Lock()
		b.service.history.add(Record{ID: strconv.Itoa(i), How: "closed"})
		b.service.mu.Unlock()
		if i%maxPage == 0 {
			b.service.history.save(t.Context())
		}
	}
	b.stop()
	pages, err := b.store.List(t.Context(), keyHistory)
	if err != nil || len(pages) > 4 {
		t.Errorf("%d pages, %v; want at most 4 for a history of 2 full ones", len(pages), err)
	}
	b.start()
	past := b.past()
	if len(past) != limit || b.service.history.totals.Carried != 5*maxPage+10 {
		t.Errorf("%d records, totals %+v", len(past), b.service.history.totals)
	}
	if last := b.service.history.records[limit-1].ID; last != strconv.Itoa(5*maxPage+9) {
		t.Errorf("the last record is %s", last)
	}
}

// TestRestart starts a second service while a session runs. It checks that the service finds the
// same rules, and cleans up a session that only one agent knows.
func TestRestart(t *testing.T) {
	b := newBench(t)
	_, held := b.syn(hostA)
	if got := b.fate(held); got != "released" {
		t.Fatalf("the packet was %s", got)
	}
	before := b.net.snapshot()
	b.stop()
	half := agentapi.NewSessionID()
	lost := figure()
	lost.Client = netip.AddrPortFrom(hostA.Addr(), 777)
	about, err := json.Marshal(sessionContext{Layout: lost})
	if err != nil {
		t.Fatal(err)
	}
	b.y.mu.Lock()
	b.y.sessions[half] = agentapi.Session{ID: half, Role: agentapi.RoleServer, Phase: agentapi.PhaseRunning, Context: about}
	b.y.mu.Unlock()
	b.net.Restart()
	b.start()
	b.agentsUp()
	after, atReady := b.net.snapshot(), rulesOf(b.net.AtReady())
	for key, rules := range before {
		sameRules(t, key, after[key], rules)
		sameRules(t, key+" before the network may remove what nobody wants", atReady[key], rules)
	}
	if b.net.AtReady() == nil {
		t.Error("the network was not told that everything is declared")
	}
	b.eventually("the half session is gone", func() bool { return b.y.count() == 1 })
	if probe := b.frame(); probe.Destination() != lost.Client || probe.Source() != hostB {
		t.Errorf("%v is provoked, want the client of the half session", probe.Destination())
	}
	v, next := b.syn(lost.Client)
	if v != network.Stop {
		t.Errorf("while its client is being reset, a new connection of the half session's ends: %v", v)
	}
	if got := b.fate(next); got != "released" {
		t.Errorf("once that is over, its first packet is %s", got)
	}
	if taken := b.service.takeoverResult; taken.Sessions != 1 || taken.Dropped != 1 {
		t.Errorf("taken over: %+v", taken)
	}
	for _, id := range b.x.ids() {
		b.x.finish(id, agentapi.ReasonClosed)
		b.y.finish(id, agentapi.ReasonClosed)
	}
	b.clean()
}

// TestUnusableRecords checks that unusable stored records are deleted, and do not keep the service
// from starting.
func TestUnusableRecords(t *testing.T) {
	b := newBench(t)
	b.stop()
	broken := []string{keyEdges + "one", keyStrayRules + "10.0.0.1", keyLive + "no-session"}
	for _, key := range broken {
		if err := b.store.Put(t.Context(), key, []byte("{")); err != nil {
			t.Fatal(err)
		}
	}
	b.start()
	for _, key := range broken {
		if _, err := b.store.Get(t.Context(), key); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s is still stored: %v", key, err)
		}
	}
	b.agentsUp()
	_, held := b.syn(hostA)
	if got := b.fate(held); got != "released" {
		t.Errorf("the packet was %s", got)
	}
	b.x.finish(b.x.only(t), agentapi.ReasonClosed)
	b.y.finish(b.y.only(t), agentapi.ReasonClosed)
	b.clean()
}
