package handover

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/config/configtest"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/services/handover/registry"
)

const (
	handoverPool = "  pools:\n    campus: {prefix: 10.8.0.0/16, gateway: 10.8.0.1}\n"
	handoverKey  = "5ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7"
)

// handoverWrongs are sections handover that "sluice config check" refuses.
var handoverWrongs = []configtest.Wrong{
	{Name: "unknown key", Text: "handover:\n  pool: {}", Line: 2, Key: "handover.pool", Value: "", Want: `did you mean "pools"?`},
	{Name: "unknown key of a pool", Text: "handover:\n  pools:\n    campus:\n      prefx: 10.8.0.0/16", Line: 4, Key: "handover.pools.campus.prefx", Value: "", Want: `did you mean "prefix"?`},
	{Name: "pool without prefix", Text: "handover:\n  pools:\n    campus: {gateway: 10.8.0.1}", Line: 3, Key: "handover.pools.campus.prefix", Value: "", Want: "IPv4 prefix"},
	{Name: "gateway outside of its pool", Text: "handover:\n  pools:\n    campus:\n      prefix: 10.8.0.0/16\n      gateway: 10.9.0.1", Line: 5, Key: "handover.pools.campus.gateway", Value: "10.9.0.1", Want: "10.8.0.0/16"},
	{Name: "lease without unit", Text: "handover:\n  pools:\n    campus: {prefix: 10.8.0.0/16, gateway: 10.8.0.1, lease_time: '60'}", Line: 3, Key: "handover.pools.campus.lease_time", Value: "60", Want: "unit"},
	{Name: "pools that overlap", Text: "handover:\n" + handoverPool + "    other: {prefix: 10.8.4.0/24, gateway: 10.8.4.1}", Line: 4, Key: "handover.pools.other.prefix", Value: "10.8.4.0/24", Want: "apart"},
	{Name: "unknown policy", Text: "handover:\n  classes:\n    cars: {policy: fast}", Line: 3, Key: "handover.classes.cars.policy", Value: "fast", Want: "seamless"},
	{Name: "wrong port", Text: "handover:\n  classes:\n    cars: {ports: [edge1]}", Line: 3, Key: "handover.classes.cars.ports[0]", Value: "edge1", Want: "00000000000000a1/3"},
	{Name: "MAC of two devices", Text: "handover:\n" + handoverPool + "  devices:\n    a: {macs: ['02:00:00:00:00:01']}\n    b: {macs: ['02:00:00:00:00:01']}", Line: 6, Key: "handover.devices.b.macs[0]", Value: "02:00:00:00:00:01", Want: `device "a"`},
	{Name: "device of no class", Text: "handover:\n" + handoverPool + "  devices:\n    a: {macs: ['02:00:00:00:00:01'], class: cars}", Line: 5, Key: "handover.devices.a.class", Value: "cars", Want: "one of the classes"},
	{Name: "short key", Text: "handover:\n" + handoverPool + "  devices:\n    a: {macs: ['02:00:00:00:00:01'], key: abc}", Line: 5, Key: "handover.devices.a.key", Value: "(hidden)", Want: "64 hex digits"},
	{Name: "border port without port", Text: "handover:\n  borders: [{peer: ''}]", Line: 2, Key: "handover.borders[0].port", Value: "", Want: "switch port"},
	{Name: "two border ports on one port", Text: "handover:\n  borders: [{port: 00000000000000a1/3}, {port: 00000000000000a1/3}]", Line: 2, Key: "handover.borders[1].port", Value: "00000000000000a1/3", Want: "of its own"},
	{Name: "border port to nobody", Text: "handover:\n  borders: [{port: 00000000000000a1/3, peer: north}]", Line: 2, Key: "handover.borders[0].peer", Value: "north", Want: "handover.neighbours"},
	{Name: "neighbour without border port", Text: "handover:\n  domain: here\n  neighbours:\n    north: {url: 'https://192.0.2.1:8443', prefixes: [10.7.0.0/16], tls: {cert: FILE, key: FILE, ca: FILE}}", Line: 4, Key: "handover.neighbours.north", Value: "", Want: "handover.borders"},
	{Name: "cell without area", Text: "handover:\n  coverage:\n    west: {port: 00000000000000a1/3}", Line: 0, Key: "handover.coverage", Value: "", Want: "radius"},
	{Name: "corner of one number", Text: "handover:\n  coverage:\n    west: {port: 00000000000000a1/3, polygon: [[1]]}", Line: 3, Key: "handover.coverage.west.polygon[0]", Value: "", Want: "two numbers"},
	{Name: "neither move nor refuse", Text: "handover:\n  two_ports: ask", Line: 2, Key: "handover.two_ports", Value: "ask", Want: "one of move, refuse"},
}

func TestHandoverRefuses(t *testing.T) {
	file := configtest.File(t)
	for _, w := range handoverWrongs {
		t.Run(w.Name, func(t *testing.T) {
			err := config.Parse(config.Sources{File: "f.yaml"}, []byte(strings.ReplaceAll(w.Text, "FILE", file)), config.DefaultController(kit.Sections([]kit.Definition{Definition()})))
			if err == nil {
				t.Fatal("accepted")
			}
			text := err.Error()
			for _, part := range []string{w.Key, w.Value, w.Want} {
				if !strings.Contains(text, part) {
					t.Errorf("%q is missing in: %s", part, text)
				}
			}
		})
	}
}

func TestHandover(t *testing.T) {
	c := config.DefaultController(kit.Sections([]kit.Definition{Definition()}))
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
	if err := config.Parse(config.Sources{File: "f.yaml"}, []byte(text), c); err != nil {
		t.Fatal(err)
	}
	s, faults := config.Of[*Section](c).Settings()
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
	if shown := config.Render(c); strings.Contains(shown, "5ec7") {
		t.Errorf("the key is shown:\n%s", shown)
	}
}
