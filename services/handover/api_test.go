package handover

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/deviceauth"
	"github.com/sluice-net/sluice/services/handover/predict"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// serve offers the service's API over HTTP.
func (r *rig) serve() string {
	a := api.New(api.Options{Auth: api.Auth{Tokens: []api.Token{api.NewToken("test", "secret")}}})
	r.Register(a)
	server := httptest.NewServer(a.Handler())
	r.t.Cleanup(server.Close)
	return server.URL
}

// ask makes a request and returns status and body.
func (r *rig) ask(url, method, path, body string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, url+"/api/v1/handover/"+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer secret")
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// with returns the valid input as JSON with one field changed; nil removes the field.
func with(good map[string]any, field string, value any) string {
	m := maps.Clone(good)
	m[field] = value
	if value == nil {
		delete(m, field)
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// Every kind of invalid input is refused as a whole, with the field and what would be valid, and
// changes nothing.
func TestWrongInput(t *testing.T) {
	r := newRig(t, func(s *Settings) {
		s.Cells = []Cell{{Cell: predict.Cell{Name: "west", Place: edge3, Area: predict.Area{Radius: 10}}}}
	})
	url := r.serve()
	r.attach(edge3, mac1)
	r.idle()
	class := map[string]any{"policy": "saving", "ports": []string{edge3.String()}}
	pool := map[string]any{"prefix": "10.9.0.0/24", "gateway": "10.9.0.1"}
	device := map[string]any{"macs": []string{"02:00:00:00:01:01"}}
	position := map[string]any{"device": "car", "x": 1, "y": 1, "speed": 1, "heading": 90}
	const p, d, c = "pools/new", "devices/new", "classes/new"
	report := func(field string, v any) string { return "[" + with(position, field, v) + "]" }
	cases := []struct {
		method, path, body string
		status             int
		field              string
	}{
		{"PUT", c, with(class, "policy", "quick"), 422, "body.policy"},
		{"PUT", c, with(class, "trigger", "wish"), 422, "body.trigger"},
		{"PUT", c, with(class, "ports", []string{"3"}), 422, "body.ports[0]"},
		{"PUT", c, with(class, "ports", []string{"00000000000000a1/0"}), 422, "body.ports[0]"},
		{"PUT", c, with(class, "ports", []string{edge3.String(), edge3.String()}), 422, "body.ports[1]"},
		{"PUT", c, with(class, "overlap", "soon"), 422, "body.overlap"},
		{"PUT", c, with(class, "overlap", "11s"), 422, "body.overlap"},
		{"PUT", c, with(class, "overlap", "-1s"), 422, "body.overlap"},
		{"PUT", c, with(class, "overlaps", "1s"), 422, "body.overlaps"},
		{"PUT", "classes/a%20b", with(class, "overlap", nil), 422, "path.name"},
		{"PUT", p, with(pool, "prefix", nil), 422, "body.prefix"},
		{"PUT", p, with(pool, "prefix", "10.9.0.0"), 422, "body.prefix"},
		{"PUT", p, with(pool, "prefix", "10.9.0.1/24"), 422, "body.prefix"},
		{"PUT", p, with(pool, "prefix", "10.9.0.0/31"), 422, "body.prefix"},
		{"PUT", p, with(pool, "prefix", "2001:db8::/64"), 422, "body.prefix"},
		{"PUT", p, `{"prefix":"10.8.4.0/24","gateway":"10.8.4.1"}`, 422, "body.prefix"}, // overlaps another pool
		{"PUT", p, with(pool, "gateway", nil), 422, "body.gateway"},
		{"PUT", p, with(pool, "gateway", "10.10.0.1"), 422, "body.gateway"},
		{"PUT", p, with(pool, "gateway", "router"), 422, "body.gateway"},
		{"PUT", p, with(pool, "gateway_mac", "02:00"), 422, "body.gateway_mac"},
		{"PUT", p, with(pool, "gateway_mac", "01:00:5e:00:00:01"), 422, "body.gateway_mac"},
		{"PUT", p, with(pool, "first", "10.9.1.1"), 422, "body.first"},
		{"PUT", p, with(pool, "last", "10.9.0.255"), 422, "body.last"},
		{"PUT", p, `{"prefix":"10.9.0.0/24","gateway":"10.9.0.1","first":"10.9.0.9","last":"10.9.0.8"}`, 422, "body.last"},
		{"PUT", p, with(pool, "lease_time", "1"), 422, "body.lease_time"},
		{"PUT", p, with(pool, "lease_time", "1ms"), 422, "body.lease_time"},
		{"PUT", p, with(pool, "mtu", 100), 422, "body.mtu"},
		{"PUT", p, with(pool, "dns", []string{"dns.example"}), 422, "body.dns[0]"},
		{"PUT", p, with(pool, "domain", "a..b"), 422, "body.domain"},
		{"PUT", p, with(pool, "class", "none"), 422, "body.class"},
		{"PUT", p, with(pool, "learn", "yes"), 422, "body.learn"},
		{"PUT", d, with(device, "macs", nil), 422, "body.macs"},
		{"PUT", d, with(device, "macs", []string{}), 422, "body.macs"},
		{"PUT", d, with(device, "macs", []string{"car"}), 422, "body.macs[0]"},
		{"PUT", d, with(device, "macs", []string{"ff:ff:ff:ff:ff:ff"}), 422, "body.macs[0]"},
		{"PUT", d, with(device, "macs", []string{"02:00:00:00:01:01", "02:00:00:00:01:01"}), 422, "body.macs[1]"},
		{"PUT", d, with(device, "macs", []string{mac2.String()}), 422, "body.macs[0]"}, // another device's
		{"PUT", d, with(device, "ip", "10.8.0.1"), 422, "body.ip"},                     // the router's
		{"PUT", d, with(device, "ip", "10.8.1.0"), 422, "body.ip"},                     // another device's
		{"PUT", d, with(device, "ip", "192.0.2.1"), 422, "body.ip"},
		{"PUT", d, with(device, "ip", "2001:db8::1"), 422, "body.ip"},
		{"PUT", d, with(device, "key", "secret"), 422, "body.key"},
		{"PUT", d, with(device, "class", "none"), 422, "body.class"},
		{"PUT", d, with(device, "pool", "none"), 422, "body.pool"},
		{"PUT", d, with(device, "ports", []string{"edge/1"}), 422, "body.ports[0]"},
		{"PUT", "devices/a%2Fb", with(device, "ip", nil), 422, "path.name"},
		{"DELETE", "devices/none", "", 404, "path.name"},
		{"DELETE", "pools/campus", "", 409, "path.name"},
		{"DELETE", "classes/seamless", "", 409, "path.name"},
		{"DELETE", "leases/none", "", 404, "path.name"},
		{"GET", "devices/none", "", 404, "path.name"},
		{"GET", "handovers/none", "", 404, "path.id"},
		{"GET", "handovers?kind=jump", "", 422, "query.kind"},
		{"GET", "handovers?limit=0", "", 422, "query.limit"},
		{"POST", "devices/none/move", `{}`, 404, "path.name"},
		{"POST", "devices/car/move", `{}`, 409, "path.name"}, // no daemon
		{"POST", "devices/car/move", `{"port":"here"}`, 422, "body.port"},
		{"POST", "devices/car/move", `{"port":"0000000000000099/1"}`, 422, "body.port"},
		{"POST", "devices/car/move", `{"port":"` + uplink.String() + `"}`, 422, "body.port"},
		{"POST", "devices/car/move", `{"port":"` + ref(2, 12).String() + `"}`, 422, "body.port"},
		{"POST", "devices/car/move", `{"mac":"` + mac3.String() + `"}`, 422, "body.mac"},
		{"POST", "devices/car/move", `{"hold":"ever"}`, 422, "body.hold"},
		{"POST", "devices/car/prepare", `{"port":""}`, 422, "body.port"},
		{"POST", "devices/car/prepare", `{"port":"` + edge4.String() + `","timeout":"1h"}`, 422, "body.timeout"},
		{"POST", "devices/phone/prepare", `{"port":"` + edge4.String() + `"}`, 409, "path.name"}, // it has no place
		{"POST", "devices/car/prepare", `{"port":"` + edge3.String() + `"}`, 409, "path.name"},   // it is there
		{"POST", "devices/car/announce", `{"domain":"north"}`, 404, "body.domain"},
		{"POST", "positions", `[]`, 422, "body"},
		{"POST", "positions", report("device", "none"), 422, "body[0].device"},
		{"POST", "positions", report("speed", 4000), 422, "body[0].speed"},
		{"POST", "positions", report("lat", 1), 422, "body[0].lat"},
		{"POST", "positions", report("time", "2001-01-01T00:00:00Z"), 422, "body[0].time"},
		{"POST", "devices/car/orders/x", `{"done":true}`, 422, "path.order"},
	}
	if len(cases) < 30 {
		t.Fatal("too few")
	}
	state := func() string {
		text := ""
		for _, path := range []string{"classes", "pools", "devices", "leases", "handovers", "positions"} {
			_, body := r.ask(url, "GET", path, "")
			text += body
		}
		return text
	}
	r.w.touched()
	before := state()
	for _, tt := range cases {
		name := tt.method + " " + tt.path + " " + tt.body
		status, body := r.ask(url, tt.method, tt.path, tt.body)
		if status != tt.status {
			t.Errorf("%s: status %d, want %d: %s", name, status, tt.status, body)
			continue
		}
		var problem struct {
			Errors []struct{ Location, Message string }
		}
		if err := json.Unmarshal([]byte(body), &problem); err != nil {
			t.Fatal(err)
		}
		found := slices.ContainsFunc(problem.Errors, func(e struct{ Location, Message string }) bool {
			return e.Location == tt.field && len(e.Message) > 5
		})
		if !found {
			t.Errorf("%s: does not name %s: %s", name, tt.field, body)
		}
	}
	if after := state(); after != before {
		t.Errorf("something has changed:\n%s\n%s", before, after)
	}
	if got := r.w.touched(); len(got) > 0 {
		t.Errorf("rules were written to %v", got)
	}
}

func TestKeysAreNeverShown(t *testing.T) {
	r := newRig(t, nil)
	url := r.serve()
	key := strings.Repeat("5eC7e7", 11)[:64]
	if status, body := r.ask(url, "PUT", "devices/car9", `{"macs":["02:00:00:00:09:01"],"key":"`+key+`"}`); status != 200 || strings.Contains(strings.ToLower(body), "5ec7") {
		t.Fatalf("%d %s", status, body)
	}
	for _, path := range []string{"devices", "devices/car9", "status"} {
		if _, body := r.ask(url, "GET", path, ""); strings.Contains(strings.ToLower(body), "5ec7") {
			t.Errorf("%s shows it: %s", path, body)
		}
	}
	var d DeviceInfo
	if _, body := r.ask(url, "GET", "devices/car9", ""); json.Unmarshal([]byte(body), &d) != nil || !d.Keyed {
		t.Errorf("%+v", d)
	}
}

// daemon is a device's daemon that listens for orders.
func (r *rig) daemon(url, id string, key []byte) (*http.Response, *bufio.Reader) {
	r.t.Helper()
	path := "/api/v1/handover/devices/" + id + "/orders"
	req, err := http.NewRequestWithContext(r.t.Context(), "GET", url+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", deviceauth.Header(key, id, "GET", path, time.Now()))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp, bufio.NewReader(resp.Body)
}

// A daemon receives its device's orders, by the device's key and no other; the place is prepared
// before.
func TestOrders(t *testing.T) {
	key := slices.Repeat([]byte{9}, 32)
	r := newRig(t, func(s *Settings) {
		for id := range s.Devices {
			alter(s.Devices, id, func(d *registry.Device) { d.Key, d.Class = key, "seamless" })
		}
	})
	url := r.serve()
	ip := r.attach(edge3, mac3)
	r.idle()
	for _, bad := range [][]byte{nil, slices.Repeat([]byte{8}, 32)} {
		if resp, _ := r.daemon(url, "phone", bad); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("a daemon with another key gets %s", resp.Status)
		}
	}
	resp, lines := r.daemon(url, "phone", key)
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	r.eventually("the daemon to listen", func() bool { return r.api.daemons.orders.isListening("phone") })
	mac4 := "02:00:00:00:00:04"
	status, body := r.ask(url, "POST", "devices/phone/move", fmt.Sprintf(`{"port":%q,"mac":%q,"why":"load"}`, edge4, mac4))
	if status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	if got := r.down(ip, mac3); len(got) != 2 {
		t.Errorf("ordered, but packets go to %v", got)
	}
	var order Order
	for order.ID == 0 {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if err := json.Unmarshal([]byte(data), &order); err != nil {
				t.Fatal(err)
			}
		}
	}
	if order.MAC.String() != mac4 || order.To == nil || order.To.PortRef != edge4 || !order.Prepared || order.Why != "load" {
		t.Errorf("order %+v", order)
	}
	// The device's key opens its own orders only.
	for _, path := range []string{"/api/v1/handover/devices", "/api/v1/handover/devices/car/orders", "/api/v1/status"} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", deviceauth.Header(key, "phone", "GET", path, time.Now()))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	if got := r.move(edge4, mac(mac4), ip); got != ip {
		t.Fatalf("moved, and got %v", got)
	}
	r.eventually("one place to be served", func() bool { return len(r.down(ip, mac3)) == 1 })
	rec := r.api.records(handoversInput{Device: "phone", Kind: "move"})
	if len(rec) != 1 || !rec[0].Prepared {
		t.Errorf("record %+v", rec)
	}
}

// A prepared place that is not used is given up after its timeout.
func TestPrepareIsTakenBack(t *testing.T) {
	for device, m := range map[string][]string{"car": {mac1.String(), mac2.String()}, "phone": {mac3.String(), "02:00:00:00:00:04"}} {
		t.Run(device, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			url := r.serve()
			ip := r.attach(edge3, mac(m[0]))
			r.idle()
			before := r.w.Program("device/" + device).Rules
			body := fmt.Sprintf(`{"port":%q,"mac":%q,"timeout":"5s"}`, edge5, m[1])
			if status, text := r.ask(url, "POST", "devices/"+device+"/prepare", body); status != 200 {
				t.Fatalf("%d %s", status, text)
			}
			if c := diffRules(before, r.w.Program("device/"+device).Rules); c.Added == 0 || device == "car" && c.Modified+c.Deleted > 0 {
				t.Errorf("prepared by %+v", c)
			}
			if got := r.down(ip, mac(m[0])); device == "car" && len(got) != 1 {
				t.Errorf("a device of a saving class is served at %v", got)
			}
			r.eventually("it to be taken back", func() bool {
				return diffRules(before, r.w.Program("device/"+device).Rules) == Changes{}
			})
		})
	}
}

// The place of a device that drives from one cell into the next is prepared in time.
func TestPrediction(t *testing.T) {
	r := newRig(t, func(s *Settings) {
		s.Cells = []Cell{
			{Cell: predict.Cell{Name: "west", Place: edge3, Area: predict.Area{Radius: 100}}},
			{Cell: predict.Cell{Name: "east", Place: edge5, Area: predict.Area{Centre: predict.Point{X: 150}, Radius: 100}}, Interface: 2},
		}
	})
	url := r.serve()
	ip := r.attach(edge3, mac3)
	r.idle()
	report := func(x float64) string {
		return fmt.Sprintf(`[{"device":"phone","x":%g,"y":0,"speed":20,"heading":90}]`, x)
	}
	if status, body := r.ask(url, "POST", "positions", report(-90)); status != 200 || !strings.Contains(body, `"next":"east"`) || strings.Contains(body, `"prepared":true`) {
		t.Fatalf("%d %s", status, body)
	}
	if got := r.down(ip, mac3); len(got) != 1 {
		t.Errorf("prepared seconds too early: %v", got)
	}
	if status, body := r.ask(url, "POST", "positions", report(49)); status != 200 || !strings.Contains(body, `"prepared":true`) {
		t.Fatalf("%d %s", status, body)
	}
	r.eventually("the place to be prepared", func() bool { return len(r.down(ip, mac3)) == 2 })
	if got := r.move(edge5, mac("02:00:00:00:00:04"), ip); got != ip {
		t.Fatalf("got %v", got)
	}
	r.eventually("the move to be recorded as prepared", func() bool {
		rec := r.api.records(handoversInput{Device: "phone", Kind: "move"})
		return len(rec) == 1 && rec[0].Prepared
	})
}
