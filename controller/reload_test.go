package controller

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/services"
)

// TestReloadTakesDeclaredThings checks that items of the configuration change when it is read
// again, in every service that has such items, and that a configuration that one service refuses
// changes nothing in the others.
func TestReloadTakesDeclaredThings(t *testing.T) {
	r := run(t, testConfig(t, "memory"))
	read := func(text string) *config.Controller {
		t.Helper()
		next := services.DefaultConfig()
		if err := config.Parse(config.Sources{File: "next.yaml"}, []byte(text), next); err != nil {
			t.Fatal(err)
		}
		return config.Adopt(r.inForce.Load(), next)
	}
	paths := []string{"qos/critical", "qos/classes", "cinema/channels", "mobilityfirst/nodes", "handover/classes"}
	lists := func(name string, want bool) {
		t.Helper()
		for _, path := range paths {
			var all []struct {
				Name string `json:"name"`
				ID   string `json:"id"`
			}
			r.get(t, "/api/v1/"+path, &all)
			found := false
			for _, x := range all {
				found = found || x.Name == name || x.ID == name
			}
			if found != want {
				t.Errorf("%s lists %s: %v, want %v", path, name, found, want)
			}
		}
	}
	const text = `
qos:
  critical: {NAME: {rate: 1Mbit, match: {tcp_dst: 80}}}
  classes: {NAME: {priority: 2, flows: [{ipv4_dst: 10.0.0.4, udp_dst: 80}]}}
cinema: {channels: {NAME: {number: 1, bit_rate: 1Mbit}}}
mobilityfirst: {nodes: {NAME: {url: 'https://127.0.0.1:1'}}}
handover: {classes: {NAME: {policy: saving}}}
`
	lists("one", false)
	if err := r.Reload(t.Context(), read(strings.ReplaceAll(text, "NAME", "one"))); err != nil {
		t.Fatal(err)
	}
	lists("one", true)
	if err := r.Reload(t.Context(), read(strings.ReplaceAll(text, "NAME", "two"))); err != nil {
		t.Fatal(err)
	}
	lists("one", false)
	lists("two", true)
}
