package cinema

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/crypto/bcrypt"

	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// restart stops the controller, and starts another one with the same store. What the switches
// have stays, and is compared with what the next controller declares when it is ready.
func (b *harness) restart() {
	b.t.Helper()
	b.stop()
	b.ledger.Restart()
	b.start()
}

// TestRestart checks that a restarted controller writes nothing until gateways have reported
// their viewers, and then declares what was there before, bucket by bucket.
func TestRestart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.protect("b", "secret")
	for i := range 20 {
		b.mustWant(b.east, i, uint16(6019-i), "a")
	}
	b.mustWant(b.west, 30, 6000, "a")
	b.net.SetTopology(triangle(2, [2]openflow.DatapathID{1, 2}))
	b.service.Channels.Wake()
	b.eventually("the channel goes round", func() bool { _, links := b.copies("a"); return links == 2 })
	b.net.SetTopology(triangle(3)) // a new tree would not do this
	tells(b.west, id(31), 6001, "b")
	if _, err := b.service.changeViewer(t.Context(), &gatewayapi.Wanted{Gateway: "west", Viewer: id(31), Port: 6001, Channels: []string{"b"}, Password: "secret"}); err != nil {
		t.Fatal(err)
	}
	b.eventually("the tree is stored", func() bool {
		all, err := b.store.List(t.Context(), treePrefix)
		return err == nil && len(all) == 2
	})
	before := b.ledger.Programs()
	b.restart()
	b.eventually("it is ready", func() bool { return b.ledger.AtReady() != nil })
	if after := b.ledger.AtReady(); !reflect.DeepEqual(after, before) {
		t.Errorf("declared again:\n%v\nbefore:\n%v", after, before)
	}
	if n := b.service.viewers.countWatching("b"); n != 1 {
		t.Errorf("%d viewers of the channel with a password", n)
	}
	b.mustWant(b.east, 40, 7000, "a")
}

// TestRestartWithoutGateway checks that a gateway that does not return delays the others only
// for a time, and that its viewers are served again when it is heard.
func TestRestartWithoutGateway(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.mustWant(b.east, 1, 6000, "a")
	b.settle = 4 * time.Second
	b.east.end()
	b.stop()
	b.ledger.Restart()
	b.start()
	if err := b.want(b.west, 2, 6000, "a"); err == nil || !strings.Contains(err.Error(), "just been started") || !b.onlyGuards() {
		t.Errorf("while it waits: %v, has written %v", err, b.ledger.Keys())
	}
	b.eventually("it goes on", func() bool { return b.ledger.AtReady() != nil })
	b.mustWant(b.west, 2, 6000, "a")
	b.expect("a", 1, "10.0.0.3:6000")
}

// protect gives a channel a password.
func (b *harness) protect(channel, password string) {
	b.t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		b.t.Fatal(err)
	}
	c := b.configured[channel]
	c.ViewHash = string(hash)
	b.configured = maps.Clone(b.configured)
	b.configured[channel] = c
	if err := b.service.Channels.Configure(b.t.Context(), b.configured); err != nil {
		b.t.Fatal(err)
	}
}

// TestEventsCorrect checks that a gateway's report corrects its requests, and that a viewer
// missing from it is removed.
func TestEventsCorrect(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tells(b.east, id(1), 6000, "a")
	b.awaitCopies("a", "10.0.0.2:6000")
	b.mustWant(b.east, 2, 6001, "a")
	tells(b.east, id(2), 6001, "b")
	b.awaitCopies("b", "10.0.0.2:6001")
	b.awaitCopies("a", "10.0.0.2:6000")
	tells(b.east, id(1), 6000)
	b.awaitCopies("a")
	tells(b.east, id(2), 6001)
	b.awaitCopies("b")
}

// TestGatewayReplaced checks that a restarted gateway has other viewers.
func TestGatewayReplaced(t *testing.T) {
	now := time.Now()
	v := newViewers()
	open := func(string) bool { return true }
	told := []gatewayapi.Viewer{{ID: id(1), Port: 6000, Channels: []string{"a"}}}
	v.applyReport("east", "first", told, bounds{viewers: 10}, now, open)
	w := &gatewayapi.Wanted{Gateway: "east", Viewer: id(2), Port: 6000, Channels: []string{"a"}}
	if out, err := v.request(w, bounds{viewers: 10}, now); err != nil || len(out) != 2 || len(out[1].after) != 0 {
		t.Errorf("a port that is another's now: %+v, %v", out, err)
	}
	v.applyReport("east", "second", nil, bounds{viewers: 10}, now.Add(time.Second), open)
	if got := v.list(); len(got) != 1 || got[0].id != id(2) {
		t.Errorf("what the new one has asked for before its first event: %+v", got)
	}
	if out, _ := v.applyReport("east", "second", nil, bounds{viewers: 10}, now.Add(5*time.Second), open); len(out) != 1 || len(v.list()) != 0 {
		t.Errorf("%+v, left %+v", out, v.list())
	}
}

// TestGatewayUnreachable checks that viewers of an unreachable gateway get nothing until it is heard
// again, and that they can leave meanwhile.
func TestGatewayUnreachable(t *testing.T) {
	v, now, b := newViewers(), time.Now(), bounds{viewers: 10}
	want := func(n int, channels ...string) error {
		_, err := v.request(&gatewayapi.Wanted{Gateway: "east", Viewer: id(n), Port: uint16(6000 + n), Channels: channels}, b, now)
		return err
	}
	v.applyReport("east", "one", nil, b, now, nil)
	for n := range 2 {
		if err := want(n, "a"); err != nil {
			t.Fatal(err)
		}
	}
	v.markUnreachable("east")
	for n, channels := range [][]string{{"b", "a"}, {"a"}, {"a"}} {
		r, ok := errors.AsType[*refusal](want(n, channels...))
		if !ok || r.field != "gateway" {
			t.Errorf("viewer %d may have %v: %v", n, channels, r)
		}
	}
	if err := want(1); err != nil || v.countAt("east") != 1 {
		t.Errorf("%v, and %d viewers are left", err, v.countAt("east"))
	}
	v.applyReport("east", "one", nil, b, now, nil)
	if err := want(2, "a"); err != nil || v.countWatching("a") != 2 {
		t.Errorf("it is heard again: %v, %d viewers", err, v.countWatching("a"))
	}
}

// TestRemoveViewer checks that a viewer removed by an operator gets nothing any more, whatever
// its gateway reports, until it returns with another identifier.
func TestRemoveViewer(t *testing.T) {
	b := newBench(t)
	b.mustWant(b.east, 1, 6000, "a")
	if status, body := b.ask("DELETE", "viewers/"+id(1), ""); status != http.StatusNoContent {
		t.Fatalf("%d %s", status, body)
	}
	b.expect("a", 0)
	if status, body := b.ask("DELETE", "viewers/"+id(1), ""); status != http.StatusNotFound || !strings.Contains(body, "path.id") {
		t.Errorf("%d %s", status, body)
	}
	if err := b.want(b.east, 1, 6000, "a"); err == nil || !strings.Contains(err.Error(), "removed") {
		t.Errorf("it is back: %v", err)
	}
	b.mustWant(b.east, 2, 6001, "b")
	b.expect("a", 0)
}

// statusOf returns the HTTP status of an error of the API.
func statusOf(err error) int {
	if e, ok := errors.AsType[huma.StatusError](err); ok {
		return e.GetStatus()
	}
	return 0
}

// TestPasswords checks that only viewers with the password get a protected channel. Guessing is
// slow, does not affect others, and cannot be bypassed by reports.
func TestPasswords(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.protect("b", "secret")
	ask := func(n int, password string) error {
		_, err := b.service.changeViewer(t.Context(), &gatewayapi.Wanted{Gateway: "east", Viewer: id(n), Port: uint16(6000 + n), Channels: []string{"b"}, Password: password})
		return err
	}
	tells(b.east, id(1), 6001, "b")
	if err := ask(1, "secret"); err != nil {
		t.Fatal(err)
	}
	if err := ask(1, ""); err != nil {
		t.Errorf("who has the channel already: %v", err)
	}
	for i := range maxViewerFailures {
		if err := ask(2, fmt.Sprint("guess", i)); statusOf(err) != http.StatusForbidden {
			t.Errorf("a wrong password: %v", err)
		}
	}
	if err := ask(2, "guess"); statusOf(err) != http.StatusTooManyRequests {
		t.Errorf("one guess more: %v", err)
	}
	if err := ask(2, "secret"); err != nil {
		t.Errorf("a right one that needs no comparison: %v", err)
	}
	for range 2 * maxViewerFailures {
		if err := ask(5, ""); statusOf(err) != http.StatusForbidden {
			t.Errorf("no password, which is no guess: %v", err)
		}
	}
	if err := ask(3, "wrong"); statusOf(err) != http.StatusForbidden {
		t.Errorf("another viewer: %v", err)
	}
	tells(b.east, id(2), 6002, "b")
	tells(b.east, id(3), 6003, "b")
	tells(b.east, id(4), 6004, "a")
	b.awaitCopies("a", "10.0.0.2:6004")
	b.expect("b", 1, "10.0.0.2:6001", "10.0.0.2:6002")
	for _, text := range []string{get[[]ChannelInfo](b, "channels")[1].Name, "view_password\":true"} {
		if _, body := b.ask("GET", "channels", ""); !strings.Contains(body, text) || strings.Contains(body, "secret") || strings.Contains(body, "$2a$") {
			t.Errorf("shown: %s", body)
		}
	}
	if !get[gatewayapi.Lineup](b, "lineup").Channels[1].Protected {
		t.Error("the lineup says that everybody may watch")
	}
}

// TestHostileGateway checks that a hostile gateway gets no more than its share: viewers up to
// its limit, changes up to a bound, and nothing invalid. Others are not affected.
func TestHostileGateway(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.mustWant(b.west, 1, 6000, "a")
	b.eventually("its limit is known", func() bool { st := b.service.egress.Get("east").State(); return viewerLimit(&st) == 100 })
	for i := range 300 {
		_ = b.want(b.east, i, uint16(10000+i), "a")
	}
	b.eventually("its events are there, too", func() bool { return len(get[[]ViewerInfo](b, "viewers")) == 101 })
	all := make([]gatewayapi.Viewer, 1_000_000)
	for i := range all {
		all[i] = gatewayapi.Viewer{ID: id(i), Port: uint16(i), Channels: []string{"a"}}
	}
	v := newViewers()
	v.applyReport("east", "first", all, bounds{viewers: limitOf(0)}, time.Now(), func(string) bool { return true })
	if n := v.countAt("east"); n > MaxViewers || n < MaxViewers-minPort {
		t.Errorf("%d viewers", n)
	}
	v = newViewers()
	v.applyReport("east", "first", []gatewayapi.Viewer{
		{ID: "x", Port: 6000, Channels: []string{"a"}},
		{ID: id(1), Port: 80, Channels: []string{"a"}},
		{ID: id(2), Port: 6000},
		{ID: id(3), Port: 6000, Channels: []string{"a", "b", "c"}},
		{ID: id(4), Port: 6000, Channels: []string{"a", "a"}},
		{ID: id(5), Port: 6000, Channels: []string{"../a"}},
		{ID: id(6), Port: 6001, Channels: []string{"a"}},
		{ID: id(6), Port: 6002, Channels: []string{"b"}},
		{ID: id(7), Port: 6001, Channels: []string{"a"}},
	}, bounds{viewers: 10}, time.Now(), func(string) bool { return true })
	if got := v.list(); len(got) != 1 || got[0].id != id(6) || got[0].port != 6001 {
		t.Errorf("%+v", got)
	}
	b.eventually("others are copied to", func() bool { to, _ := b.copies("a"); return slices.Contains(to, "10.0.0.3:6000") && len(to) == 101 })
	b.mustWant(b.west, 2, 6001, "b")
	door := b.service.admission.gateway("east")
	for range maxPendingChanges {
		door.changes <- struct{}{}
	}
	if err := b.want(b.east, 1, 10001, "b"); statusOf(err) != http.StatusTooManyRequests {
		t.Errorf("one change too many: %v", err)
	}
	b.mustWant(b.west, 3, 6002, "b")
}

func limitOf(told int) int {
	st := agents.State{}
	st.Status.MaxSessions = told
	return viewerLimit(&st)
}
