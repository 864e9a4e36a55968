package experiment

import (
	"errors"
	"testing"
)

// TestParsePathRules checks that rules of paths are told apart from others, and that two rules for the
// same label and addresses are an error.
func TestParsePathRules(t *testing.T) {
	const (
		unknown = " cookie=0x5, duration=3.1s, table=6, n_packets=9, n_bytes=0, priority=100,vlan_tci=0x1800/0x1800,dl_type=0x27c0 actions=drop\n"
		there   = " cookie=0x5, duration=3.1s, table=6, n_packets=1400, n_bytes=9, idle_age=0, priority=110,in_port=1,dl_vlan=2048,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,dl_type=0x27c0 actions=output:2\n"
		back    = " cookie=0x5, duration=3.1s, table=6, n_packets=7, n_bytes=9, priority=110,in_port=2,dl_vlan=2048,dl_src=02:00:00:00:00:02,dl_dst=02:00:00:00:00:01,dl_type=0x27c0 actions=pop_vlan,output:1\n"
		other   = " cookie=0x5, duration=3.1s, table=6, n_packets=3, n_bytes=9, priority=110,in_port=3,dl_vlan=2048,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,dl_type=0x27c0 actions=output:4\n"
	)
	rules, err := parsePathRules(unknown + there + back)
	if err != nil || len(rules) != 2 || rules[labelledFrames{"2048", "02:00:00:00:00:01", "02:00:00:00:00:02"}] != 1400 {
		t.Errorf("%v, %v", rules, err)
	}
	if rules, err := parsePathRules(there + other); !errors.Is(err, errTwoMeanings) {
		t.Errorf("the same label and addresses at two ports: %v, %v", rules, err)
	}
}
