package experiment

import (
	"slices"
	"testing"
)

// TestAgentsResultShowsCPU checks that the CPU of table 3.4.1 stands beside ours.
func TestAgentsResultShowsCPU(t *testing.T) {
	r := agentsResult([]int{1, 2}, map[int]*agentsSamples{
		1: {rates: []float64{100e6}, senders: []float64{10}, receivers: []float64{12}},
		2: {rates: []float64{190e6}, senders: []float64{21}, receivers: []float64{23}},
	})
	if got, want := r.Tables[1].Rows[1], []string{"2", "507 ± 47", "460 ± 45", "21", "23"}; !slices.Equal(got, want) {
		t.Errorf("CPU of two pairs: %q, want %q", got, want)
	}
	if c := r.Claims[0]; !c.Met || c.Result != "1.90 times" {
		t.Errorf("two pairs that carry 1.9 times as much as one: %+v", c)
	}
}
