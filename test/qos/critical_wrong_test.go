package qos

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/qos"
	"github.com/sluice-net/sluice/services/qos/critical"
	"github.com/sluice-net/sluice/services/qos/reserve"
	"github.com/sluice-net/sluice/store/memstore"
)

// TestCriticalWrongRequests checks that each invalid request is refused as a whole, with
// the field and what would be right.
func TestCriticalWrongRequests(t *testing.T) {
	h := newCriticalAPI(t)
	for _, c := range []struct{ name, body, field string }{
		{"not JSON", `{"name": `, ""},
		{"nothing", ``, ""},
		{"a list", `[]`, ""},
		{"no name", `{"rate": "1Mbit", "match": {"tcp_dst": 80}}`, "name"},
		{"empty name", `{"name": "", "rate": "1Mbit", "match": {"tcp_dst": 80}}`, "body.name"},
		{"name with a space", `{"name": "a b", "rate": "1Mbit", "match": {"tcp_dst": 80}}`, "body.name"},
		{"name too long", `{"name": "` + strings.Repeat("a", 64) + `", "rate": "1Mbit", "match": {"tcp_dst": 80}}`, "body.name"},
		{"name that is a number", `{"name": 5, "rate": "1Mbit", "match": {"tcp_dst": 80}}`, "body.name"},
		{"unknown field", `{"name": "a", "rate": "1Mbit", "burst": 2, "match": {"tcp_dst": 80}}`, "body.burst"},
		{"no rate", `{"name": "a", "match": {"tcp_dst": 80}}`, "rate"},
		{"rate zero", `{"name": "a", "rate": "0bit", "match": {"tcp_dst": 80}}`, "body.rate"},
		{"rate below zero", `{"name": "a", "rate": "-1Mbit", "match": {"tcp_dst": 80}}`, "body.rate"},
		{"rate beyond all links", `{"name": "a", "rate": "2Tbit", "match": {"tcp_dst": 80}}`, "body.rate"},
		{"rate without a unit", `{"name": "a", "rate": 1000000, "match": {"tcp_dst": 80}}`, "body.rate"},
		{"rate as text", `{"name": "a", "rate": "fast", "match": {"tcp_dst": 80}}`, "body.rate"},
		{"reverse rate below zero", `{"name": "a", "rate": "1Mbit", "reverse_rate": "-1bit", "match": {"tcp_dst": 80}}`, "body.reverse_rate"},
		{"no match", `{"name": "a", "rate": "1Mbit"}`, "match"},
		{"empty match", `{"name": "a", "rate": "1Mbit", "match": {}}`, "body.match"},
		{"unknown field of a match", `{"name": "a", "rate": "1Mbit", "match": {"tcp_port": 80}}`, "body.match.tcp_port"},
		{"list in a match", `{"name": "a", "rate": "1Mbit", "match": {"tcp_dst": [80]}}`, "body.match.tcp_dst"},
		{"port 0", `{"name": "a", "rate": "1Mbit", "match": {"tcp_dst": 0}}`, "body.match.tcp_dst"},
		{"port 65536", `{"name": "a", "rate": "1Mbit", "match": {"tcp_dst": 65536}}`, "body.match.tcp_dst"},
		{"range backwards", `{"name": "a", "rate": "1Mbit", "match": {"udp_src": "20-10"}}`, "body.match.udp_src"},
		{"ranges of too many rules", `{"name": "a", "rate": "1Mbit", "match": {"tcp_src": "1-65534", "tcp_dst": "1-65534"}}`, "body.match"},
		{"bad address", `{"name": "a", "rate": "1Mbit", "match": {"ipv4_dst": "10.0.0.256"}}`, "body.match.ipv4_dst"},
		{"host bits", `{"name": "a", "rate": "1Mbit", "match": {"ipv4_dst": "10.0.0.1/8"}}`, "body.match.ipv4_dst"},
		{"wrong family", `{"name": "a", "rate": "1Mbit", "match": {"ipv6_dst": "10.0.0.1"}}`, "body.match.ipv6_dst"},
		{"two families", `{"name": "a", "rate": "1Mbit", "match": {"ipv4_dst": "10.0.0.1", "ipv6_dst": "::1"}}`, "body.match.ipv6_dst"},
		{"two protocols", `{"name": "a", "rate": "1Mbit", "match": {"tcp_dst": 80, "udp_dst": 80}}`, "body.match.udp_dst"},
		{"bad MAC address", `{"name": "a", "rate": "1Mbit", "match": {"eth_src": "02:00"}}`, "body.match.eth_src"},
		{"DSCP 64", `{"name": "a", "rate": "1Mbit", "match": {"ip_dscp": 64}}`, "body.match.ip_dscp"},
		{"VLAN 4095", `{"name": "a", "rate": "1Mbit", "match": {"vlan_vid": 4095}}`, "body.match.vlan_vid"},
		{"priority without VLAN", `{"name": "a", "rate": "1Mbit", "match": {"vlan_pcp": 1}}`, "body.match.vlan_pcp"},
		{"idle timeout of half a second", `{"name": "a", "rate": "1Mbit", "match": {"tcp_dst": 80}, "idle_timeout": "500ms"}`, "body.idle_timeout"},
		{"idle timeout without a unit", `{"name": "a", "rate": "1Mbit", "match": {"tcp_dst": 80}, "idle_timeout": "30"}`, "body.idle_timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, answer := h.ask(t, http.MethodPost, "/api/v1/qos/critical", c.body)
			if status < 400 || status >= 500 || !strings.Contains(answer, c.field) {
				t.Errorf("%d, want the field %q in %s", status, c.field, answer)
			}
		})
	}
	if status, answer := h.ask(t, http.MethodDelete, "/api/v1/qos/critical/none", ""); status != http.StatusNotFound {
		t.Errorf("withdrawing what is not there: %d %s", status, answer)
	}
	const good = `{"name": "a", "rate": "1kbit", "match": {"tcp_dst": "80"}}`
	if status, answer := h.ask(t, http.MethodPost, "/api/v1/qos/critical", good); status != http.StatusCreated {
		t.Errorf("a good one: %d %s", status, answer)
	}
	if status, answer := h.ask(t, http.MethodPost, "/api/v1/qos/critical", good); status != http.StatusConflict {
		t.Errorf("the same again: %d %s", status, answer)
	}
	if _, answer := h.ask(t, http.MethodGet, "/api/v1/qos/critical", ""); strings.Count(answer, `"name"`) != 1 {
		t.Errorf("defined: %s", answer)
	}
}

// criticalAPI is the API of a controller without switches.
type criticalAPI struct{ server *httptest.Server }

func newCriticalAPI(t *testing.T) criticalAPI {
	t.Helper()
	n, err := network.New(network.Config{Listen: []string{"127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	owner, err := n.Owner(critical.Owner, network.OwnerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	book := reserve.New(reserve.UseOf(n))
	held := newGuard(t, n, book)
	s := critical.New(critical.Options{
		Network: n, Rules: owner, Store: memstore.New(), Book: book, Guard: held, Log: slog.Default(), Publish: unheard, Interval: 5 * time.Second,
	})
	a := api.New(api.Options{Version: "test", Auth: api.Auth{Tokens: []api.Token{api.NewToken("test", criticalToken)}}})
	qos := qos.New(book, held, s)
	qos.Register(a)
	server := httptest.NewServer(a.Handler())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- n.Run(ctx) }()
	go func() { ended <- qos.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		server.Close()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	return criticalAPI{server}
}

func (h criticalAPI) ask(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, h.server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+criticalToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}
