package controller

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
)

// refusal is one kind of wrong request: what the answer must name.
type refusal struct {
	name, method, path, body string
	status                   int
	// location is the field, value part of what is shown as given, want part
	// of what would be right.
	location, value, want string
}

const (
	sosPath = "/api/v1/sos/"
	netPath = "/api/v1/network/"
)

func entry(change string) string {
	fields := map[string]string{"clients": `["10.0.0.0/24"]`, "servers": `["10.1.0.7"]`, "ports": `["80"]`}
	key, value, _ := strings.Cut(change, "=")
	fields[key] = value
	return object(fields)
}

func agentSpec(change string) string {
	fields := map[string]string{"name": `"agent-1"`, "url": `"https://192.0.2.7:8440"`, "addrs": `["10.0.0.11"]`}
	key, value, _ := strings.Cut(change, "=")
	fields[key] = value
	return object(fields)
}

// object returns a JSON object with the fields that are not empty.
func object(fields map[string]string) string {
	var parts []string
	for k, v := range fields {
		if v != "" {
			parts = append(parts, `"`+k+`":`+v)
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

var refusals = []refusal{
	{"body that is no JSON", "POST", sosPath + "whitelist", `{"clients"`, 400, "body", "", "unexpected end"},
	{"list for an object", "POST", sosPath + "whitelist", `[]`, 422, "body", "", "object"},
	{"no body", "POST", sosPath + "whitelist", ``, 400, "", "", "required"},
	{"unknown field", "POST", sosPath + "whitelist", entry(`colour="red"`), 422, "body.colour", "", "unexpected property"},
	{"clients missing", "POST", sosPath + "whitelist", entry(`clients=`), 422, "body", "", "clients"},
	{"clients empty", "POST", sosPath + "whitelist", entry(`clients=[]`), 422, "body.clients", "", ""},
	{"text for a list", "POST", sosPath + "whitelist", entry(`clients="10.0.0.1"`), 422, "body.clients", "10.0.0.1", "array"},
	{"name for an address", "POST", sosPath + "whitelist", entry(`servers=["server-1"]`), 422, "body.servers[0]", "server-1", "10."},
	{"prefix too long", "POST", sosPath + "whitelist", entry(`clients=["10.0.0.0/33"]`), 422, "body.clients[0]", "10.0.0.0/33", "10."},
	{"port that is none", "POST", sosPath + "whitelist", entry(`ports=["http"]`), 422, "body.ports[0]", "http", "port"},
	{"port 0", "POST", sosPath + "whitelist", entry(`ports=["0"]`), 422, "body.ports[0]", "0", "port"},
	{"port out of range", "POST", sosPath + "whitelist", entry(`ports=["65536"]`), 422, "body.ports[0]", "65536", "port"},
	{"range upside down", "POST", sosPath + "whitelist", entry(`ports=["90-80"]`), 422, "body.ports[0]", "90-80", "port"},
	{"second of two ports", "POST", sosPath + "whitelist", entry(`ports=["80","x"]`), 422, "body.ports[1]", "x", "port"},
	{"time that is none", "POST", sosPath + "whitelist", entry(`start="tomorrow"`), 422, "body.start", "tomorrow", "date-time"},
	{"stop before start", "POST", sosPath + "whitelist", entry(`stop="2001-01-01T00:00:00Z","start":"2002-01-01T00:00:00Z"`), 422, "body.stop", "2001", "after start"},
	{"name too long", "POST", sosPath + "whitelist", entry(`name="` + strings.Repeat("a", 65) + `"`), 422, "body.name", "aaa", "64"},
	{"too many connections", "POST", sosPath + "whitelist", entry(`tuning={"connections":1000}`), 422, "body.tuning.connections", "1000", "64"},
	{"negative connections", "POST", sosPath + "whitelist", entry(`tuning={"connections":-1}`), 422, "body.tuning.connections", "-1", "0"},
	{"chunk too small", "POST", sosPath + "whitelist", entry(`tuning={"chunk_bytes":10}`), 422, "body.tuning.chunk_bytes", "10", "4096"},
	{"transport that is none", "POST", sosPath + "whitelist", entry(`tuning={"transport":"sctp"}`), 422, "body.tuning.transport", "sctp", "tcp"},
	{"congestion control that is none", "POST", sosPath + "whitelist", entry(`tuning={"congestion_control":"BBR 3"}`), 422, "body.tuning.congestion_control", "BBR 3", "bbr"},
	{"entry that is not there", "DELETE", sosPath + "whitelist/nothing", ``, 404, "path.name", "nothing", "list them"},

	{"agent's name with a space", "POST", sosPath + "agents", agentSpec(`name="agent 1"`), 422, "body.name", "agent 1", "lower-case"},
	{"agent's name that is a path", "POST", sosPath + "agents", agentSpec(`name="announce"`), 422, "body.name", "announce", "another name"},
	{"null for what is left out", "POST", sosPath + "whitelist", entry(`stop=null`), 400, "body", "", "body.stop is null"},
	{"agent's URL without scheme", "POST", sosPath + "agents", agentSpec(`url="192.0.2.7:8440"`), 422, "body.url", "192.0.2.7", "https://"},
	{"agent over plain HTTP", "POST", sosPath + "agents", agentSpec(`url="http://192.0.2.7:8440"`), 422, "body.url", "http://192.0.2.7", "https"},
	{"agent without addresses", "POST", sosPath + "agents", agentSpec(`addrs=[]`), 422, "body.addrs", "", ">= 1"},
	{"agent on loopback", "POST", sosPath + "agents", agentSpec(`addrs=["127.0.0.1"]`), 422, "body.addrs[0]", "127.0.0.1", "10.0.0.11"},
	{"two addresses of one family", "POST", sosPath + "agents", agentSpec(`addrs=["10.0.0.1","10.0.0.2"]`), 422, "body.addrs[1]", "10.0.0.2", "each family"},
	{"agent's bound negative", "POST", sosPath + "agents", agentSpec(`max_sessions=-1`), 422, "body.max_sessions", "-1", ">= 0"},
	{"remove an agent that is not there", "DELETE", sosPath + "agents/nobody", ``, 404, "path.name", "nobody", "list them"},
	{"drain an agent that is not there", "POST", sosPath + "agents/nobody/drain", `{"on":true}`, 404, "path.name", "nobody", "list them"},
	{"drain by a word", "POST", sosPath + "agents/nobody/drain", `{"on":"yes"}`, 422, "body.on", "yes", "boolean"},

	{"metric that is none", "PATCH", sosPath + "config", `{"metric":"distance"}`, 422, "body.metric", "distance", "latency"},
	{"duration without unit", "PATCH", sosPath + "config", `{"idle":"5"}`, 422, "body.idle", "5", "unit"},
	{"duration out of range", "PATCH", sosPath + "config", `{"prepare_timeout":"1h"}`, 422, "body.prepare_timeout", "1h", "10s"},
	{"number for a duration", "PATCH", sosPath + "config", `{"idle":60}`, 422, "body.idle", "60", "string"},
	{"number out of range", "PATCH", sosPath + "config", `{"max_setups":0}`, 422, "body.max_setups", "0", ">= 1"},
	{"one right and one wrong setting", "PATCH", sosPath + "config", `{"history":5,"balance":"fair"}`, 422, "body.balance", "fair", "sessions"},
	{"setting that is none", "PATCH", sosPath + "config", `{"speed":1}`, 422, "body.speed", "", "unexpected property"},
	{"session that is not there", "DELETE", sosPath + "sessions/00000000000000000000000000000000", ``, 404, "path.id", "0000", ""},
	{"state of sessions that is none", "GET", sosPath + "sessions?state=dead", ``, 422, "query.state", "dead", "live"},

	{"switch that is no number", "GET", netPath + "switches/edge", ``, 404, "path.dpid", "edge", "connected"},
	{"switch that is not there", "GET", netPath + "switches/00000000000000a1", ``, 404, "path.dpid", "00000000000000a1", "connected"},
	{"ports of a wrong switch", "GET", netPath + "ports?switch=zz", ``, 404, "query.switch", "zz", "connected"},
	{"rules of a wrong switch", "GET", netPath + "rules?switch=a/1", ``, 422, "query.switch", "a/1", "16 hexadecimal digits"},
	{"host by a wrong address", "GET", netPath + "hosts?ip=10.0.0.300", ``, 422, "query.ip", "10.0.0.300", "192.0.2.1"},
	{"host by a wrong MAC address", "GET", netPath + "hosts?mac=02:00", ``, 422, "query.mac", "02:00", "02:00:00:00:00:01"},
	{"path from nowhere", "GET", netPath + "paths?to=10.0.0.1", ``, 422, "query.from", "", "required"},
	{"path from a wrong place", "GET", netPath + "paths?from=here&to=10.0.0.1", ``, 422, "query.from", "here", "SWITCH/PORT"},
	{"path from an unknown host", "GET", netPath + "paths?from=10.9.9.9&to=10.0.0.1", ``, 404, "query.from", "10.9.9.9", "known"},
	{"path by a wrong metric", "GET", netPath + "paths?from=10.0.0.1&to=10.0.0.2&metric=beauty", ``, 422, "query.metric", "beauty", "latency"},
	{"no paths at all", "GET", netPath + "paths?from=10.0.0.1&to=10.0.0.2&count=0", ``, 422, "query.count", "0", "1"},
	{"trace of nothing", "GET", netPath + "trace", ``, 422, "query.packet", "", "required"},
	{"trace of a wrong word", "GET", netPath + "trace?packet=tcp,colour%3Dred", ``, 422, "query.packet", "colour", "colour"},
	{"trace of a wrong address", "GET", netPath + "trace?packet=tcp,nw_src%3D10.0.0", ``, 422, "query.packet", "10.0.0", "nw_src"},
	{"parameter that is none", "GET", netPath + "links?verbose=1", ``, 422, "query.verbose", "", "unknown"},
	{"event that is no number", "GET", "/api/v1/events?after=yesterday", ``, 422, "query.after", "yesterday", "whole number"},
	{"method that is none", "PUT", sosPath + "whitelist", `{}`, 405, "method", "PUT", "GET"},
	{"path that is none", "GET", "/api/v1/whitelist", ``, 404, "path", "/api/v1/whitelist", "/docs"},
}

// TestAPIRefuses checks that wrong input is refused with the field's name, and changes nothing.
func TestAPIRefuses(t *testing.T) {
	if len(refusals) < 30 {
		t.Errorf("%d kinds of wrong requests, want at least 30", len(refusals))
	}
	r := run(t, testConfig(t, "memory"))
	if status, _, body := r.ask(t, http.MethodPost, sosPath+"whitelist", entry("")); status != http.StatusCreated {
		t.Fatalf("a good entry: %d %s", status, body)
	}
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			before := r.dump(t)
			status, contentType, body := r.ask(t, c.method, c.path, c.body)
			if after := r.dump(t); after != before {
				t.Errorf("something has changed.\nbefore:\n%s\nafter:\n%s", before, after)
			}
			c.check(t, status, contentType, body)
		})
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func (c *refusal) check(t *testing.T, status int, contentType, body string) {
	t.Helper()
	var p huma.ErrorModel
	if err := json.Unmarshal([]byte(body), &p); err != nil || contentType != "application/problem+json" {
		t.Fatalf("%d, no problem document (%s): %s", status, contentType, body)
	}
	if status != c.status || p.Status != status || p.Title == "" || p.Detail == "" {
		t.Errorf("status %d, want %d; document: %s", status, c.status, body)
	}
	if c.location == "" {
		if !strings.Contains(body, c.want) {
			t.Errorf("does not say %q: %s", c.want, body)
		}
		return
	}
	for _, e := range p.Errors {
		value, err := json.Marshal(e.Value)
		if err != nil {
			t.Fatal(err)
		}
		if e.Location == c.location && strings.Contains(string(value), c.value) && strings.Contains(e.Message, c.want) {
			return
		}
	}
	t.Errorf("no error at %q with value %q that says %q: %s", c.location, c.value, c.want, body)
}
