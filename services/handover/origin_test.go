package handover

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// Configured declarations can be changed only in the configuration: the API refuses, and names the
// place, and a restart changes nothing.
func TestOrigins(t *testing.T) {
	st := newStore(t)
	r := start(t, newWorld(treeLinks), st, nil)
	url := r.serve()
	for _, c := range []struct{ kind, name, change string }{
		{"classes", "seamless", `{"policy":"saving"}`},
		{"pools", "campus", `{"prefix":"10.8.0.0/16","gateway":"10.8.0.1","lease_time":"2h"}`},
		{"devices", "car", `{"macs":["02:00:00:00:00:01"]}`},
	} {
		path, key := c.kind+"/"+c.name, "handover."+c.kind+"."+c.name
		for method, body := range map[string]string{http.MethodPut: c.change, http.MethodDelete: ""} {
			if status, text := r.ask(url, method, path, body); status != http.StatusConflict || !strings.Contains(text, key) {
				t.Errorf("%s %s: %d %s", method, path, status, text)
			}
		}
		own := c.kind + "/new"
		if c.kind == "pools" {
			c.change = `{"prefix":"10.9.0.0/16","gateway":"10.9.0.1"}`
		}
		body := strings.ReplaceAll(c.change, ":01", ":77")
		if c.kind == "devices" {
			body = `{"macs":["02:00:00:00:00:77"],"pool":"campus"}`
		}
		if status, text := r.ask(url, http.MethodPut, own, body); status != http.StatusOK {
			t.Errorf("PUT %s: %d %s", own, status, text)
		}
		for name, want := range map[string]string{c.name: "file", "new": "api"} {
			if got := r.originOf(url, c.kind, name); got != want {
				t.Errorf("%s %s comes from %q, want %q", c.kind, name, got, want)
			}
		}
	}
	r.stop()

	// After a restart with a smaller configuration, declarations in use are kept as the API's.
	r = start(t, newWorld(treeLinks), st, func(s *Settings) {
		s.Classes, s.Pools = nil, nil
		delete(s.Devices, "phone")
	})
	url = r.serve()
	for path, want := range map[string]string{
		"classes/default": "", "classes/seamless": "", "classes/new": "api", "pools/campus": "api", "pools/new": "api",
		"devices/car": "file", "devices/phone": "", "devices/new": "api",
	} {
		kind, name, _ := strings.Cut(path, "/")
		if got := r.originOf(url, kind, name); got != want {
			t.Errorf("after the restart %s comes from %q, want %q", path, got, want)
		}
	}
}

// originOf returns the origin of a declaration, or an empty string if there is none.
func (r *rig) originOf(url, kind, name string) string {
	r.t.Helper()
	var all []struct{ Name, ID, Origin string }
	_, text := r.ask(url, http.MethodGet, kind, "")
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		r.t.Fatal(err)
	}
	for _, x := range all {
		if x.Name == name || x.ID == name {
			return x.Origin
		}
	}
	return ""
}

// A new configuration takes effect for attached devices, or is refused as a whole.
func TestReload(t *testing.T) {
	r := newRig(t, nil)
	url := r.serve()
	ip := r.attach(edge3, mac1)
	r.idle()
	r.ask(url, http.MethodPut, "devices/own", `{"macs":["02:00:00:00:00:77"],"class":"seamless"}`)
	next := testSettings(t).Definitions
	alter(next.Devices, "phone", func(d *registry.Device) { d.MACs = []openflow.MAC{mac("02:00:00:00:00:77")} })
	alter(next.Pools, "campus", func(p *registry.Pool) { p.Gateway = ip })
	delete(next.Classes, "signed")
	err := r.Fits(next)
	for _, want := range []string{"pools.campus.gateway", "devices.own.macs[0]"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("fits: %v, want something about %s", err, want)
		}
	}

	next = testSettings(t).Definitions
	delete(next.Devices, "phone")
	delete(next.Classes, "seamless")
	alter(next.Devices, "car", func(d *registry.Device) {
		d.MACs, d.Class = []openflow.MAC{mac2}, "new" // the device came with another address
	})
	next.Classes["new"] = registry.Class{Name: "new", Trigger: registry.TriggerOpen}
	if err := r.Fits(next); err != nil {
		t.Fatal(err)
	}
	if err := r.Reconfigure(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if kept := r.w.kept(); len(kept) > 0 {
		t.Errorf("rules of %v", kept)
	}
	for path, want := range map[string]string{"devices/car": "file", "devices/phone": "", "devices/own": "api", "classes/seamless": "api"} {
		kind, name, _ := strings.Cut(path, "/")
		if got := r.originOf(url, kind, name); got != want {
			t.Errorf("%s comes from %q, want %q", path, got, want)
		}
	}
	if got := r.attach(edge3, mac2); got != ip {
		t.Errorf("the device has %v, had %v", got, ip)
	}
}
