package sos

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// status requests the status by the API, as an operator does.
func (b *restBench) status() Status {
	b.t.Helper()
	code, text := b.ask("GET", "status", "")
	var s Status
	if err := json.Unmarshal([]byte(text), &s); code != 200 || err != nil {
		b.t.Fatalf("%d %v: %s", code, err, text)
	}
	return s
}

// TestStatusNamesWhatIsWrong causes one problem after another, each on a bench of its own. It
// checks that the status names, in one line, who is concerned, the cause, and what helps.
func TestStatusNamesWhatIsWrong(t *testing.T) {
	cases := []struct {
		name  string
		spoil func(*restBench)
		want  []string
	}{
		{"no host on its data address", func(b *restBench) {
			r, _ := agents.Parse(control.AgentSpec{Name: "x2", URL: b.x2.server.URL, Addrs: []string{"10.0.0.99"}})
			if err := b.service.agents.Add(b.t.Context(), r); err != nil {
				b.t.Fatal(err)
			}
		}, []string{"agent x2 is not placed", "no host answers for its data address 10.0.0.99", "check"}},
		{"one of two addresses unplaced", func(b *restBench) {
			r, _ := agents.Parse(control.AgentSpec{Name: "x2", URL: b.x2.server.URL, Addrs: []string{"10.0.0.13", "fd00::99"}})
			if err := b.service.agents.Add(b.t.Context(), r); err != nil {
				b.t.Fatal(err)
			}
		}, []string{"agent x2 is not placed", "fd00::99"}},
		{"no certificate for another machine", func(b *restBench) {
			server := httptest.NewUnstartedServer(http.NotFoundHandler())
			server.Config.ErrorLog = log.New(io.Discard, "", 0) // drops messages about handshakes that the server refuses
			server.StartTLS()
			b.t.Cleanup(server.Close)
			r, _ := agents.Parse(control.AgentSpec{Name: "z", URL: server.URL, Addrs: []string{"10.0.0.77"}})
			if err := b.service.agents.Add(b.t.Context(), r); err != nil {
				b.t.Fatal(err)
			}
		}, []string{"agent z", "https://127.0.0.1:", "certificate signed by unknown authority", "agents.tls.cert", "restart"}},
		{"announced at another address", func(b *restBench) {
			b.ask("POST", "agents/announce", `{"name":"x","url":"https://198.51.100.7:8440","addrs":["10.0.0.88"]}`)
		}, []string{"agent x announces itself at https://198.51.100.7:8440", "10.0.0.88", agentX.Addr().String(), "sluice sos agents remove x"}},
		{"dead agent", func(b *restBench) { b.y.kill() }, []string{"agent y is silent at http://", "check that it runs"}},
		{"disabled", func(b *restBench) { b.ask("POST", "disable", "") }, []string{"SOS is disabled", "sluice sos enable"}},
		{"nothing whitelisted", func(b *restBench) {
			b.ask("DELETE", "whitelist/"+b.service.selection.whitelist[0].ID, "")
		}, []string{"the whitelist is empty", "sluice sos whitelist add"}},
		{"one agent", func(b *restBench) { b.ask("DELETE", "agents/y", "") }, []string{"fewer than two agents", "sluice sos agents add"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newRestBench(t)
			if s := b.status(); len(s.Errors) > 0 {
				t.Fatalf("of a healthy service: %q", s.Errors)
			}
			c.spoil(b)
			var got []string
			b.eventually("the status says what is wrong", func() bool {
				got = b.status().Errors
				return slices.ContainsFunc(got, func(line string) bool {
					return !strings.Contains(line, "\n") && !slices.ContainsFunc(c.want, func(w string) bool { return !strings.Contains(line, w) })
				})
			})
			if len(got) != 1 {
				t.Errorf("%d lines for one fault: %q", len(got), got)
			}
		})
	}
}

// TestAnnouncementAgreesAgain lets an agent announce other values, and then the known ones. It
// checks that the problem is then gone.
func TestAnnouncementAgreesAgain(t *testing.T) {
	b := newRestBench(t)
	announce := func(url string) {
		b.ask("POST", "agents/announce", `{"name":"x","url":"`+url+`","addrs":["`+agentX.Addr().String()+`"]}`)
	}
	announce("https://198.51.100.7:8440")
	if got := b.status().Errors; len(got) != 1 {
		t.Fatalf("want one line: %q", got)
	}
	announce(b.x.server.URL)
	if got := b.status().Errors; len(got) != 0 {
		t.Errorf("agent and controller agree, and the status says %q", got)
	}
}

// TestDirectIsCountedByReason lets connections fail in several ways, and checks that the status
// counts each reason, with its latest cause and what helps.
func TestDirectIsCountedByReason(t *testing.T) {
	problem := func(c control.Code) error { return &control.Problem{Code: c, Title: string(c)} }
	one := 1
	cases := []struct {
		reason Reason
		set    func(*restBench)
		cause  string
	}{
		{ReasonServer, func(b *restBench) { b.y.commit = func() error { return problem(control.CodeRefused) } }, "refused"},
		{ReasonAgent, func(b *restBench) {
			b.y.prepare = func(agentapi.PrepareRequest) error { return problem(control.CodeNoRoute) }
		}, "no-route"},
		{ReasonNoAgent, func(b *restBench) { b.ask("POST", "agents/x/drain", `{"on":true}`) }, "x is draining"},
		{ReasonNoGain, func(b *restBench) {
			h, _ := b.net.HostByIP(agentY.Addr())
			h.At = at(1, portX)
			b.net.SetHost(h)
			b.service.agents.Refresh()
		}, "equally near"},
		{ReasonRules, func(b *restBench) {
			b.net.mu.Lock()
			defer b.net.mu.Unlock()
			b.net.refuse = func(key string) error {
				if keyKind(key) == "server" {
					return network.ErrSwitchDown
				}
				return nil
			}
		}, "server's side"},
		{ReasonServerUnknown, func(b *restBench) {
			b.net.RemoveHost(hostB.Addr())
		}, hostB.Addr().String()},
		{ReasonSetups, func(b *restBench) {
			b.service.mu.Lock()
			defer b.service.mu.Unlock()
			b.service.config.MaxSetups = 0
		}, "max_setups"},
		{ReasonClient, func(b *restBench) {
			b.service.mu.Lock()
			defer b.service.mu.Unlock()
			b.service.config.MaxSetupsPerClient = one
			b.service.sessions.perClient[hostA.Addr()] = one
		}, "max_setups_per_client"},
	}
	for _, c := range cases {
		t.Run(string(c.reason), func(t *testing.T) {
			b := newRestBench(t)
			if s := b.status(); len(s.Direct) > 0 {
				t.Fatalf("before any connection: %+v", s.Direct)
			}
			c.set(b)
			for port := range uint16(2) {
				if _, held := b.syn(netip.AddrPortFrom(hostA.Addr(), 2000+port)); held != nil && b.fate(held) != "forwarded" {
					t.Fatal("the connection did not go directly")
				}
			}
			b.eventually("both are counted", func() bool {
				d := b.status().Direct
				return len(d) == 1 && d[0].Reason == c.reason && d[0].Count == 2
			})
			if d := b.status().Direct[0]; !strings.Contains(d.Cause, c.cause) || d.Remedy == "" || d.Latest.IsZero() {
				t.Errorf("%+v, want a cause with %q and a remedy", d, c.cause)
			}
		})
	}
}

// TestReasonsOfTheDocument compares the reasons that have a remedy with those that the API's
// document lists.
func TestReasonsOfTheDocument(t *testing.T) {
	field, _ := reflect.TypeFor[Direct]().FieldByName("Reason")
	named := strings.Split(field.Tag.Get("enum"), ",")
	if len(named) != len(remedies) {
		t.Errorf("%d reasons are named, %d have a remedy", len(named), len(remedies))
	}
	for _, reason := range named {
		if remedies[Reason(reason)] == "" {
			t.Errorf("no remedy for %q", reason)
		}
	}
}
