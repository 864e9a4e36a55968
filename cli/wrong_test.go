package cli

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/cli/command"
)

// TestWrongInputIsNamed checks that commands refuse input that they cannot use: the message says
// what is wrong, what was given and what would be right, the controller is not asked, and the exit
// code is that of a wrong command line.
func TestWrongInputIsNamed(t *testing.T) {
	for _, c := range []struct {
		args string
		want []string
	}{
		{"network trace", []string{"sluice network trace: PACKET is missing"}},
		{"qos critical add x --rate 10Mbit --match foo=1", []string{`--match "foo=1": there is no field "foo"`, "tcp_dst"}},
		{"qos critical add x --rate 10Mbit --match =5", []string{`--match "=5": write FIELD=VALUE`}},
		{"qos critical add x --rate 10Mbit --match tcp_dst=5 --match tcp_dst=6", []string{`--match "tcp_dst=6": tcp_dst is given twice`}},
		{"qos classes add VoIP --flow udp_dst", []string{`--flow "udp_dst": write FIELD=VALUE`}},
		{"handover classes set cars --policy quick", []string{"--policy", "saving", "seamless"}},
		{"handover devices set car7 --key-file nowhere", []string{"--key-file", "no such file"}},
	} {
		code, out, errOut := sluice(t, strings.Fields(c.args)...)
		if code != command.ExitUsage || out != "" {
			t.Errorf("%s: exit code %d, output %q", c.args, code, out)
		}
		for _, want := range c.want {
			if !strings.Contains(errOut, want) {
				t.Errorf("%s: does not say %q:\n%s", c.args, want, errOut)
			}
		}
	}
}
