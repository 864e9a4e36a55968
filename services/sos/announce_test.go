package sos

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestAnnouncementsNameTheAnnouncer checks that an agent that announces itself cannot make the
// controller call another host.
func TestAnnouncementsNameTheAnnouncer(t *testing.T) {
	b := newRestBench(t)
	var called atomic.Int32
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	victim := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called.Add(1) }))
	victim.Listener.Close()
	victim.Listener = l
	victim.Start()
	defer victim.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	agent := map[string]any{"name": "z", "addrs": []string{"10.0.0.77"}}
	for what, url := range map[string]string{
		"another address":              "http://127.0.0.2:" + port,
		"the same, as IPv6 writes it":  "http://[::ffff:127.0.0.2]:" + port,
		"a name that may change":       "http://localhost:" + port,
		"another machine":              "https://192.0.2.7:8440",
		"a name of nobody that counts": "https://agent.example:8440",
	} {
		status, body := b.ask("POST", "agents/announce", with(agent, "url", url))
		if status != 422 || !strings.Contains(body, "body.url") || !strings.Contains(body, "127.0.0.1") {
			t.Errorf("%s: %d %s", what, status, body)
		}
	}
	if called.Load() > 0 || len(b.service.agents.Infos()) != 2 {
		t.Errorf("called %d times, agents %v", called.Load(), b.service.agents.Infos())
	}
	if status, body := b.ask("POST", "agents/announce", with(agent, "url", "https://198.51.100.7:8440")); status != 200 {
		t.Errorf("in a subnet of the configuration: %d %s", status, body)
	}
	agent["name"], agent["addrs"] = "w", []string{"10.0.0.78"}
	own := newFakeAgent(t, b.net, "w")
	if status, body := b.ask("POST", "agents/announce", with(agent, "url", own.server.URL)); status != 200 {
		t.Errorf("itself: %d %s", status, body)
	}
}
