package experiment

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/internal/selfbuild"
)

// claimsVariable is set to 1 by make claims.
const claimsVariable = "SLUICE_CLAIMS"

// TestQuick runs some experiments at the smallest scale with real programs. They must work, write
// what they should, and meet their claims. How fast things are depends on the machine: it must
// have nothing else to do.
func TestQuick(t *testing.T) {
	live.Test(t)
	if os.Getenv(claimsVariable) != "1" {
		t.Skip("an experiment, run by make claims")
	}
	binary := selfbuild.Binary(t)
	only := map[string]Only{"cinema-scale": {"part": {"moves"}}, "multipath-fattree": {"way": {"TCP hashed", "2 placed"}}, "mf-chunks": {"mtu": {"1500"}}} // parts of what takes minutes
	for _, name := range []string{"sos-start", "sos-setup", "sos-sessions", "sos-short", "agent-relay", "handover-policies", "handover-moves", "handover-scale", "qos-algorithms", "multipath-fattree", "multipath-model", "cinema-scale", "mf-names", "mf-chunks", "mf-setup", "mf-flows"} {
		t.Run(name, func(t *testing.T) {
			e, err := Find(name)
			if err != nil {
				t.Fatal(err)
			}
			out := t.TempDir()
			result, err := Run(t.Context(), e, Options{Scale: Quick, Only: only[name], Out: out, Binary: binary, Log: t.Output()})
			if err != nil {
				t.Fatal(err)
			}
			if len(result.Tables) == 0 || len(result.Claims) == 0 {
				t.Error("the result has no table or puts nothing to the test")
			}
			for _, c := range result.Claims {
				if !c.Met {
					t.Errorf("missed: %s: %s", c.Text, c.Result)
				}
			}
			for _, pattern := range []string{"report.html", "*.csv"} {
				if files, err := filepath.Glob(filepath.Join(out, pattern)); err != nil || len(files) == 0 {
					t.Errorf("no %s in the output (%v)", pattern, err)
				}
			}
		})
	}
}
