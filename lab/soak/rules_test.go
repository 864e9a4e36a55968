package soak

import (
	"strings"
	"testing"
)

const dumped = `NXST_FLOW reply (xid=0x4):
 cookie=0x5c12340001000001, duration=1.2s, table=0, n_packets=3, n_bytes=180, idle_age=1, priority=4000,tcp,nw_src=10.0.0.1,tp_dst=80 actions=output:2
 cookie=0x5c12340001000002, duration=1.2s, table=2, n_packets=0, n_bytes=0, ip actions=drop
 cookie=0x0, duration=9.9s, table=0, n_packets=0, n_bytes=0, priority=0 actions=NORMAL
`

func TestFlowsAreComparedWithTheLedger(t *testing.T) {
	installed := rules{}
	if err := parseFlows(installed, "0000000000000001", dumped); err != nil {
		t.Fatal(err)
	}
	first := ruleKey{"0000000000000001", 0x5c12340001000001, 0, 4000}
	second := ruleKey{"0000000000000001", 0x5c12340001000002, 2, defaultPriority}
	if len(installed) != 2 || installed[first] == "" || installed[second] == "" {
		t.Fatalf("parsed %v", installed)
	}
	if err := diff(rules{first: "a", second: "b"}, installed); err != nil {
		t.Errorf("equal rules: %v", err)
	}
	for want, ledger := range map[string]rules{
		"has an undeclared rule": {first: "sos s1: tcp"},
		"lacks 0x5c12340001ffff": {first: "a", second: "b", {"0000000000000001", 0x5c12340001ffff, 0, 1}: "sos lost: tcp"},
	} {
		if err := diff(ledger, installed); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := parseFlows(rules{}, "1", "cookie=0xfffffffffffffffffff, actions=drop"); err == nil {
		t.Error("a cookie of more than 64 bits is taken")
	}
}
