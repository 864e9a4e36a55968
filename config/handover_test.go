package config

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/services/handover/registry"
)

const (
	handoverPool = "  pools:\n    campus: {prefix: 10.8.0.0/16, gateway: 10.8.0.1}\n"
	handoverKey  = "5ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7"
)

// handoverWrongs are sections handover that "sluice config check" refuses.
var handoverWrongs = []wrong{
	{"unknown key", "handover:\n  pool: {}", 2, "handover.pool", "", `did you mean "pools"?`},
	{"unknown key of a pool", "handover:\n  pools:\n    campus:\n      prefx: 10.8.0.0/16", 4, "handover.pools.campus.prefx", "", `did you mean "prefix"?`},
	{"pool without prefix", "handover:\n  pools:\n    campus: {gateway: 10.8.0.1}", 3, "handover.pools.campus.prefix", "", "IPv4 prefix"},
	{"gateway outside of its pool", "handover:\n  pools:\n    campus:\n      prefix: 10.8.0.0/16\n      gateway: 10.9.0.1", 5, "handover.pools.campus.gateway", "10.9.0.1", "10.8.0.0/16"},
	{"lease without unit", "handover:\n  pools:\n    campus: {prefix: 10.8.0.0/16, gateway: 10.8.0.1, lease_time: '60'}", 3, "handover.pools.campus.lease_time", "60", "unit"},
	{"pools that overlap", "handover:\n" + handoverPool + "    other: {prefix: 10.8.4.0/24, gateway: 10.8.4.1}", 4, "handover.pools.other.prefix", "10.8.4.0/24", "apart"},
	{"unknown policy", "handover:\n  classes:\n    cars: {policy: fast}", 3, "handover.classes.cars.policy", "fast", "seamless"},
	{"wrong port", "handover:\n  classes:\n    cars: {ports: [edge1]}", 3, "handover.classes.cars.ports[0]", "edge1", "00000000000000a1/3"},
	{"MAC of two devices", "handover:\n" + handoverPool + "  devices:\n    a: {macs: ['02:00:00:00:00:01']}\n    b: {macs: ['02:00:00:00:00:01']}", 6, "handover.devices.b.macs[0]", "02:00:00:00:00:01", `device "a"`},
	{"device of no class", "handover:\n" + handoverPool + "  devices:\n    a: {macs: ['02:00:00:00:00:01'], class: cars}", 5, "handover.devices.a.class", "cars", "one of the classes"},
	{"short key", "handover:\n" + handoverPool + "  devices:\n    a: {macs: ['02:00:00:00:00:01'], key: abc}", 5, "handover.devices.a.key", "(hidden)", "64 hex digits"},
	{"border port without port", "handover:\n  borders: [{peer: ''}]", 2, "handover.borders[0].port", "", "switch port"},
	{"two border ports on one port", "handover:\n  borders: [{port: 00000000000000a1/3}, {port: 00000000000000a1/3}]", 2, "handover.borders[1].port", "00000000000000a1/3", "of its own"},
	{"border port to nobody", "handover:\n  borders: [{port: 00000000000000a1/3, peer: north}]", 2, "handover.borders[0].peer", "north", "handover.neighbours"},
	{"neighbour without border port", "handover:\n  domain: here\n  neighbours:\n    north: {url: 'https://192.0.2.1:8443', prefixes: [10.7.0.0/16], tls: {cert: FILE, key: FILE, ca: FILE}}", 4, "handover.neighbours.north", "", "handover.borders"},
	{"cell without area", "handover:\n  coverage:\n    west: {port: 00000000000000a1/3}", 0, "handover.coverage", "", "radius"},
	{"corner of one number", "handover:\n  coverage:\n    west: {port: 00000000000000a1/3, polygon: [[1]]}", 3, "handover.coverage.west.polygon[0]", "", "two numbers"},
	{"neither move nor refuse", "handover:\n  two_ports: ask", 2, "handover.two_ports", "ask", "one of move, refuse"},
}

func TestHandoverRefuses(t *testing.T) {
	file := someFile(t)
	for _, w := range handoverWrongs {
		t.Run(w.name, func(t *testing.T) {
			err := parse(Sources{File: "f.yaml"}, []byte(strings.ReplaceAll(w.text, "FILE", file)), DefaultController())
			if err == nil {
				t.Fatal("accepted")
			}
			text := err.Error()
			for _, part := range []string{w.key, w.value, w.want} {
				if !strings.Contains(text, part) {
					t.Errorf("%q is missing in: %s", part, text)
				}
			}
		})
	}
}

func TestHandover(t *testing.T) {
	c := DefaultController()
	text := `
handover:
  domain: here
  borders: [{name: up, port: 00000000000000a1/9}]
  classes:
    cars: {policy: seamless, overlap: 300ms}
` + handoverPool + `  devices:
    car7: {macs: ['02:00:00:00:07:01', '02:00:00:00:07:02'], class: cars, key: "` + handoverKey + `"}
  coverage:
    west: {port: 00000000000000a2/1, x: 10, y: -5, radius: 200, interface: 2}
`
	if err := parse(Sources{File: "f.yaml"}, []byte(text), c); err != nil {
		t.Fatal(err)
	}
	s, faults := c.Handover.Settings()
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if len(s.Borders) != 1 || s.Borders[0].At.String() != "00000000000000a1/9" || s.Classes["cars"].Policy != registry.PolicySeamless || s.Classes["cars"].Overlap != 300*time.Millisecond {
		t.Errorf("%+v %+v", s.Borders, s.Classes)
	}
	if d := s.Devices["car7"]; len(d.Key) != 32 || len(d.MACs) != 2 || d.ID != "car7" {
		t.Errorf("%v", d)
	}
	if cell := s.Cells[0]; cell.Interface != 2 || cell.Area.Radius != 200 || cell.Area.Centre.Y != -5 {
		t.Errorf("%+v", cell)
	}
	if shown := Render(c); strings.Contains(shown, "5ec7") {
		t.Errorf("the key is shown:\n%s", shown)
	}
}
