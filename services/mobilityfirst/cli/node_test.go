package cli

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/cli/command"
)

// The flags of a control server must be complete or absent.
func TestControlled(t *testing.T) {
	for what, args := range map[string][]string{
		"--control-listen is missing": {"--control-cert", "node.crt"},
		"want an IP address":          {"--control-listen", "depot:8440"},
		"wants --control-cert":        {"--control-listen", "127.0.0.1:8440", "--control-cert", "node.crt", "--control-key", "node.key"},
	} {
		for _, node := range [][]string{{"mf", "storage", "--name-key", "key"}, {"mf", "cache", "--name-key", "key", "--dir", t.TempDir()}, {"mf", "compute", "--name-key", "key", "--builtin", "compress"}} {
			if code, _, errOut := sluice(t, append(node, args...)...); code != command.ExitUsage || !strings.Contains(errOut, what) {
				t.Errorf("%q %q: %d, %s", node, args, code, errOut)
			}
		}
	}
}
