package qos

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/openflow"
)

// readQoS reads a controller's configuration from text.
func readQoS(text string) (*config.Controller, error) {
	c := config.DefaultController(kit.Sections([]kit.Definition{Definition()}))
	return c, config.Parse(config.Sources{File: "f.yaml"}, []byte(text), c)
}

// Capacities of links stand under numbers of ports, and critical traffic is described
// as in the API, with quotes or without.
func TestQoS(t *testing.T) {
	c, err := readQoS(`
network: {switches: {0000000000000001: {capacity: {1: 25Mbit, 2: 0.5Mbit}}}}
qos:
  queues: connect
  critical:
    backup: {rate: 10Mbit, match: {ipv4_dst: 10.0.0.0/24, tcp_dst: 5001}}
    video: {rate: 2Mbit, reverse_rate: 1kbit, match: {udp_dst: "6000-6010", ip_dscp: 46}, idle_timeout: 5s}
  classes:
    VoIP: {priority: 2, min_rate: 2Mbit, latency: 150ms, flows: [{ipv4_dst: 10.0.0.4, udp_dst: 5001}]}
`)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Network.Switches[openflow.DatapathID(1)].Capacity; got[1] != 25e6 || got[2] != 5e5 {
		t.Errorf("capacities %v", got)
	}
	if config.Of[*Section](c).Queues != "connect" || DefaultSection().Queues != "classes" {
		t.Errorf("queues %q", config.Of[*Section](c).Queues)
	}
	all, faults := config.Of[*Section](c).Definitions()
	if len(faults) > 0 || len(all) != 2 || all["backup"].Reverse != 312500 || all["video"].Reverse != 1000 || len(all["video"].Matches) == 0 {
		t.Errorf("definitions %+v, faults %v", all, faults)
	}
	classes, faults := config.Of[*Section](c).ParsedClasses()
	if v := classes["VoIP"]; len(faults) > 0 || len(classes) != 1 || v.Name != "VoIP" || v.MinRate != 2e6 || v.Latency != 150*time.Millisecond || len(v.Flows) != 1 {
		t.Errorf("classes %+v, faults %v", classes, faults)
	}
}

// section is the part of the QoS section in which a key stands.
func section(key string) string { return strings.Split(key, ".")[1] }

func TestQoSRefuses(t *testing.T) {
	for key, text := range map[string]string{
		"qos.critical.a.rate":           `a: {match: {tcp_dst: 80}}`,
		"qos.critical.a.match":          `a: {rate: 1Mbit}`,
		"qos.critical.a.match.tcp_dst":  `a: {rate: 1Mbit, match: {tcp_dst: 0}}`,
		"qos.critical.a.match.tcp_port": `a: {rate: 1Mbit, match: {tcp_port: 80}}`,
		"qos.critical.a.idle_timeout":   `a: {rate: 1Mbit, match: {tcp_dst: 80}, idle_timeout: 1ms}`,
		"qos.critical.a.reverse_rate":   `a: {rate: 1Mbit, reverse_rate: -1, match: {tcp_dst: 80}}`,
		"qos.critical.a b.name":         `"a b": {rate: 1Mbit, match: {tcp_dst: 80}}`,
		"qos.critical.a.match.ipv4_dst": `a: {rate: 1Mbit, match: {ipv4_dst: 10.0.0.1/8}}`,
		"qos.critical.a.match.eth_type": `a: {rate: 1Mbit, match: {eth_type: [1]}}`,
		"qos.classes.a.flows[0]":        `a: {priority: 2, flows: [{udp_dst: 80}]}`,
		"qos.classes.a.priority":        `a: {priority: 8, flows: [{ipv4_dst: 10.0.0.4}]}`,
		"qos.classes.a.rate":            `a: {priority: 2, rate: 1Mbit, flows: [{ipv4_dst: 10.0.0.4}]}`,
		"qos.critical.a.bandwidth":      `a: {rate: 1Mbit, match: {tcp_dst: 80}, bandwidth: 5}`,
	} {
		if _, err := readQoS("qos:\n  " + section(key) + ":\n    " + text + "\n"); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
