package mobilityfirst

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/servicetest"
	"github.com/sluice-net/sluice/services/mobilityfirst/nodeapi"
	"github.com/sluice-net/sluice/store/memstore"
)

const nodesToken = "0123456789abcdef0123456789abcdef"

// rack is the service with real nodes whose work is simulated, in real time.
type rack struct {
	*Service
	t   *testing.T
	api http.Handler
}

func newRack(t *testing.T, configured map[string]agents.AgentRecord) *rack {
	r := &rack{t: t, Service: New(Options{
		Network: servicetest.NewNetwork(ring()), Rules: servicetest.NewLedger(), Store: memstore.New(), Log: slog.New(slog.DiscardHandler), Configured: configured,
	})}
	a := api.New(api.Options{Version: "test", Auth: api.Auth{Tokens: []api.Token{api.NewToken("test", nodesToken)}}, Log: slog.New(slog.DiscardHandler)})
	r.Register(a)
	r.api = a.Handler()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-r.Loaded()
	return r
}

// ask sends a request to the API and returns the status.
func (r *rack) ask(method, path, body string, out any) int {
	r.t.Helper()
	q := httptest.NewRequestWithContext(r.t.Context(), method, "/api/v1/mobilityfirst/"+path, strings.NewReader(body))
	q.Header.Set("Authorization", "Bearer "+nodesToken)
	q.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	r.api.ServeHTTP(w, q)
	if out != nil {
		if err := json.Unmarshal(w.Body.Bytes(), out); err != nil {
			r.t.Fatalf("%s %s: %d: %v: %s", method, path, w.Code, err, w.Body)
		}
	}
	return w.Code
}

// is waits until a node meets a condition.
func (r *rack) is(name, what string, right func(*NodeInfo) bool) (i NodeInfo) {
	r.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; pause.For(10*time.Millisecond, "a node tells of itself each second") {
		if r.ask(http.MethodGet, "nodes/"+name, "", &i); right(&i) {
			return i
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%s is not %s: %+v", name, what, i)
		}
	}
}

// serve runs a node's control server.
func serve(t *testing.T, o nodeapi.Options) (url string) {
	o.Log = slog.New(slog.DiscardHandler)
	server := nodeapi.NewServer(o)
	web := httptest.NewServer(server)
	t.Cleanup(func() { server.Close(); web.CloseClientConnections(); web.Close() })
	return web.URL
}

func declared(name, url string) string { return fmt.Sprintf(`{"name": %q, "url": %q}`, name, url) }

func depot() nodeapi.Report {
	return nodeapi.Report{Storage: &nodeapi.StorageReport{Chunks: 3, Destinations: 1, Bytes: 95, Size: 100}}
}

// Nodes are declared in the configuration and by the API, report their load, are drained, and are
// removed.
func TestNodes(t *testing.T) {
	a, b := numbered(1), numbered(2)
	rec, faults := (&NodeSpec{"east", serve(t, nodeapi.Options{Key: a.key, Version: "7", Report: depot})}).Parse()
	if faults != nil {
		t.Fatal(faults)
	}
	r := newRack(t, map[string]agents.AgentRecord{"east": rec})
	function := nodeapi.ComputeReport{Function: "compress", Builtin: true, Called: 5, Running: 1, Workers: 2, Load: 0.4}
	url := serve(t, nodeapi.Options{Key: b.key, Report: func() nodeapi.Report { return nodeapi.Report{Compute: &function} }})
	if code := r.ask(http.MethodPost, "nodes", declared("west", url), nil); code != http.StatusCreated {
		t.Errorf("declared: %d", code)
	}
	proven := func(i *NodeInfo) bool { return i.State == agents.Up && i.GUID != "" && i.Version != "" }
	east := r.is("east", "up, and full", func(i *NodeInfo) bool { return proven(i) && i.Standing == "full" })
	if east.Kind != "storage" || east.GUID != a.name.String() || east.Standing != "full" || east.Load != 0.95 || east.Origin != "file" || east.Storage.Chunks != 3 {
		t.Errorf("east is %+v", east)
	}
	west := r.is("west", "up", func(i *NodeInfo) bool { return i.State == agents.Up && i.GUID != "" })
	if west.Kind != "compute" || west.Standing != "fit" || west.Load != 0.4 || west.Origin != "api" || west.Error != "" {
		t.Errorf("west is %+v", west)
	}
	var all []FunctionInfo
	if r.ask(http.MethodGet, "functions", "", &all); len(all) != 1 || all[0].Node != "west" || all[0].GUID != b.name.String() || all[0].Called != 5 {
		t.Errorf("functions are %+v", all)
	}
	var drained NodeInfo
	if code := r.ask(http.MethodPost, "nodes/west/drain", `{"on": true}`, &drained); code != http.StatusOK || drained.Standing != "draining" {
		t.Errorf("drained: %d, %+v", code, drained)
	}
	for path, want := range map[string]int{"nodes/east/drain": http.StatusConflict, "nodes/north/drain": http.StatusNotFound} {
		if code := r.ask(http.MethodPost, path, `{"on": true}`, nil); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
	for _, wrong := range []string{declared("east", "https://192.0.2.9:1"), declared("north", rec.URL), declared("Nord", "https://192.0.2.9:1"), declared("north", "http://192.0.2.9:1")} {
		if code := r.ask(http.MethodPost, "nodes", wrong, nil); code != http.StatusConflict && code != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d", wrong, code)
		}
	}
	if code := r.ask(http.MethodDelete, "nodes/west", "", nil); code != http.StatusNoContent {
		t.Errorf("removed: %d", code)
	}
	r.nodes.mu.Lock()
	defer r.nodes.mu.Unlock()
	if len(r.nodes.status) != 1 || len(r.nodes.byName) != 1 {
		t.Errorf("the service remembers %v, %v", r.nodes.status, r.nodes.byName)
	}
}

// liar runs a node that reports another node's name.
func liar(t *testing.T, r nodeapi.Report, key ed25519.PrivateKey) string {
	server := nodeapi.NewServer(nodeapi.Options{Log: slog.New(slog.DiscardHandler), Key: key, Report: func() nodeapi.Report { return r }})
	live := server.Live
	server.Live = func() []nodeapi.Report {
		all := live()
		all[0].Name = r.Name
		return all
	}
	web := httptest.NewServer(server)
	t.Cleanup(func() { server.Close(); web.CloseClientConnections(); web.Close() })
	return web.URL
}

// A node that does not have the key of the name that it reports, or whose report is not possible,
// does not count, and its fault is shown.
func TestNodesThatLie(t *testing.T) {
	r := newRack(t, nil)
	victim := depot()
	victim.Name = numbered(1).name
	wrong := depot()
	wrong.Name, wrong.Storage.Chunks = numbered(3).name, -1
	for name, c := range map[string]struct {
		url, want string
	}{
		"thief":  {liar(t, victim, numbered(2).key), "holds the key of"},
		"absurd": {liar(t, wrong, numbered(3).key), "-1 of something"},
	} {
		r.ask(http.MethodPost, "nodes", declared(name, c.url), nil)
		if i := r.is(name, "found out", func(i *NodeInfo) bool { return strings.Contains(i.Error, c.want) }); i.GUID != "" {
			t.Errorf("%s has name %s", name, i.GUID)
		}
	}
	if f := r.nodes.fitness(victim.Name, host(1, 1)); f.standing != standingFit {
		t.Errorf("the victim is %v", f)
	}
}

// A node that claims a restart in each event, and never proves its name, causes no more requests
// for proofs than an honest one.
func TestNodeThatStartsAgainAlways(t *testing.T) {
	r := newRack(t, nil)
	report := depot()
	report.Name = numbered(1).name
	var proofs atomic.Int32
	again := make(chan struct{}, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/events", func(w http.ResponseWriter, _ *http.Request) {
		for i := range 500 {
			_ = json.NewEncoder(w).Encode(nodeEvent{Instance: fmt.Sprint(i), Live: []nodeapi.Report{report}})
		}
		select {
		case again <- struct{}{}:
		default:
		}
	})
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") })
	mux.HandleFunc("POST /v1/proof", func(_ http.ResponseWriter, q *http.Request) {
		proofs.Add(1)
		_, _ = io.Copy(io.Discard, q.Body)
		<-q.Context().Done()
	})
	web := httptest.NewServer(mux)
	t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
	r.ask(http.MethodPost, "nodes", declared("restless", web.URL), nil)
	for range 3 { // the controller comes again when it has read all of an answer
		<-again
	}
	if n := proofs.Load(); n > 1 {
		t.Errorf("%d proofs are asked for at one time", n)
	}
}

// The chunks in storage nodes are listed in pages, each row once, together with the nodes that
// could not be queried.
func TestCustodyPages(t *testing.T) {
	r := newRack(t, nil)
	rows := func(of string, n int) func(nodeapi.CustodyQuery) nodeapi.CustodyPage {
		return func(q nodeapi.CustodyQuery) (p nodeapi.CustodyPage) {
			for i := range n {
				x := nodeapi.Custody{Pair: nodeapi.Pair{Destination: numbered(1).name}, Chunks: 1}
				x.Source[0], x.Source[19] = byte(i+1), of[0]
				if x.Compare(q.After) <= 0 || !q.For.IsZero() && q.For != x.Destination {
					continue
				}
				if p.More = len(p.Rows) == q.Limit; p.More {
					break
				}
				p.Rows = append(p.Rows, x)
			}
			return p
		}
	}
	liar := func(nodeapi.CustodyQuery) nodeapi.CustodyPage {
		return nodeapi.CustodyPage{Rows: make([]nodeapi.Custody, 2000)}
	}
	for name, custody := range map[string]func(nodeapi.CustodyQuery) nodeapi.CustodyPage{"a": rows("a", 5), "b": liar, "c": rows("c", 4)} {
		url := serve(t, nodeapi.Options{Key: numbered(int(name[0])).key, Report: depot, Custody: custody})
		if code := r.ask(http.MethodPost, "nodes", declared(name, url), nil); code != http.StatusCreated {
			t.Fatal(code)
		}
		r.is(name, "up", func(i *NodeInfo) bool { return i.State == agents.Up })
	}
	seen, after, missing := map[string]bool{}, "", 0
	for range 10 {
		var l CustodyList
		if code := r.ask(http.MethodGet, "custody?limit=2&after="+after, "", &l); code != http.StatusOK {
			t.Fatal(code)
		}
		missing += len(l.Missing)
		for _, x := range l.Chunks {
			if after = x.key(); seen[after] {
				t.Errorf("%s is there twice", after)
			}
			seen[after] = true
		}
		if len(l.Chunks) < 2 {
			break
		}
	}
	if len(seen) != 9 || missing != 1 {
		t.Errorf("%d rows, %d missing: %v", len(seen), missing, seen)
	}
	var l CustodyList
	if r.ask(http.MethodGet, "custody?for="+numbered(2).name.String(), "", &l); len(l.Chunks) != 0 {
		t.Errorf("for another there is %+v", l)
	}
	for _, wrong := range []string{"limit=0", "limit=1001", "for=me", "after=a/b"} {
		if code := r.ask(http.MethodGet, "custody?"+wrong, "", nil); code != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d", wrong, code)
		}
	}
	var places []func()
	for range maxCustodyRequests {
		r.nodes.custodySlots <- struct{}{}
		places = append(places, func() { <-r.nodes.custodySlots })
	}
	if code := r.ask(http.MethodGet, "custody", "", nil); code != http.StatusTooManyRequests {
		t.Errorf("one more than may: %d", code)
	}
	for _, leave := range places {
		leave()
	}
}

var errGone = errors.New("it is gone")

// The state of a removed node is forgotten, whatever arrives from it later.
func TestNodeGone(t *testing.T) {
	r := newRack(t, nil)
	a := &node{Name: "gone"}
	r.nodes.handleEvent(a, nodeEvent{Instance: "1", Live: []nodeapi.Report{depot()}}, false)
	r.nodes.forget(a, nil, errGone)
	if len(r.nodes.status) != 0 {
		t.Errorf("it is remembered: %v", r.nodes.status)
	}
}
