package sos

import (
	"testing"

	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// TestFairnessOfTransfers checks that agents get the fairness of a whitelist entry, else that of the
// configuration, and that another word than those that agents know is refused.
func TestFairnessOfTransfers(t *testing.T) {
	for _, c := range []struct {
		entry, config string
		want          agentapi.Fairness
	}{{"", "", ""}, {"", "client", agentapi.FairnessClient}, {"session", "client", agentapi.FairnessSession}, {"client", "", agentapi.FairnessClient}} {
		if got := (Tuning{Fairness: c.entry}).over(Tuning{Fairness: c.config}).params().Fairness; got != c.want {
			t.Errorf("%q in the entry, %q in the configuration: %q, want %q", c.entry, c.config, got, c.want)
		}
	}
	faults := Tuning{Fairness: "agent"}.check()
	if len(faults) != 1 || faults[0].Field != "fairness" {
		t.Errorf("%v, want a fault of fairness", faults)
	}
}
