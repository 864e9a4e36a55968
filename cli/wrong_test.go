package cli

import (
	"strings"
	"testing"
)

// TestWrongInputIsNamed gives commands what they cannot use: each says what is wrong, with
// what was given, and what would be right, without asking the controller, and ends with the
// exit code of a wrong command line.
func TestWrongInputIsNamed(t *testing.T) {
	for _, c := range []struct {
		args string
		want []string
	}{
		{"lab generate", []string{"sluice lab generate: line|ring|tree", "is missing"}},
		{"lab generate star", []string{`"star" is not one of line, ring`}},
		{"lab generate line extra", []string{`"extra" is one argument too many`}},
		{"lab generate line --size x", []string{`--size "x": write a whole number`}},
		{"lab generate line --size 1", []string{"--size 1: write a number from 2 to 64"}},
		{"lab generate tree --depth 9", []string{"--depth 9: write a number from 1 to 6"}},
		{"lab generate tree --depth 9 --fanout 0", []string{"--depth 9", "--fanout 0: write a number from 1 to 16"}},
		{"lab generate wan --size 5", []string{"--size means nothing to the shape wan"}},
		{"lab generate line --fanout 3", []string{"--fanout means nothing to the shape line"}},
		{"lab generate fat-tree --size 5", []string{"--size 5", "even number of ports"}},
		{"lab exec", []string{"sluice lab exec: NODE COMMAND is missing"}},
		{"lab exec client", []string{"COMMAND is missing"}},
		{"lab exec client --", []string{"COMMAND is missing after --"}},
		{"lab up", []string{"FILE is missing"}},
		{"lab status a b", []string{`"b" is one argument too many`}},
		{"network trace", []string{"sluice network trace: PACKET is missing"}},
		{"experiment run", []string{"NAME is missing"}},
		{"qos critical add x --rate 10Mbit --match foo=1", []string{`--match "foo=1": there is no field "foo"`, "tcp_dst"}},
		{"qos critical add x --rate 10Mbit --match =5", []string{`--match "=5": write FIELD=VALUE`}},
		{"qos critical add x --rate 10Mbit --match tcp_dst=5 --match tcp_dst=6", []string{`--match "tcp_dst=6": tcp_dst is given twice`}},
		{"qos class add VoIP --flow udp_dst", []string{`--flow "udp_dst": write FIELD=VALUE`}},
		{"qos class add VoIP --flow udp_dst=5 --latency 150", []string{`--latency "150": write a time with its unit`}},
		{"handover devices set car7", []string{"--mac is missing", "like 02:00:00:00:07:01"}},
	} {
		code, out, errOut := sluice(t, strings.Fields(c.args)...)
		if code != ExitUsage || out != "" {
			t.Errorf("%s: exit code %d, output %q", c.args, code, out)
		}
		for _, want := range c.want {
			if !strings.Contains(errOut, want) {
				t.Errorf("%s: does not say %q:\n%s", c.args, want, errOut)
			}
		}
	}
}
