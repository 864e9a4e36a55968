package soak

import (
	"slices"
	"testing"
)

func TestOrderFollowsFromTheSeed(t *testing.T) {
	all := []kill{
		{program: controller},
		{program: device},
		{program: agent, name: "x"},
		{program: agent, name: "y"},
		{program: vswitchd, name: "s1"},
		{program: vswitchd, name: "s2"},
		{program: vswitchd, name: "s3"},
		{program: classifier},
	}
	names := func(seed uint64, first bool) (out []string) {
		h := &harm{seed: seed}
		for _, k := range order(h.random(1), all, first) {
			out = append(out, string(k.program)+" "+k.name)
		}
		return out
	}
	one := names(7, true)
	if !slices.Equal(one, names(7, true)) {
		t.Error("the same seed gives another order")
	}
	if slices.Equal(one, names(8, true)) {
		t.Error("another seed gives the same order")
	}
	h := &harm{seed: 7}
	kinds := map[program]bool{}
	for _, k := range order(h.random(1), all, true)[:5] {
		kinds[k.program] = true
	}
	if len(kinds) != 5 {
		t.Errorf("the first five kills are of %d kinds", len(kinds))
	}
	sorted := slices.Sorted(slices.Values(one))
	if len(slices.Compact(sorted)) != len(all) {
		t.Errorf("a round kills %v", one)
	}
}

func TestOfKinds(t *testing.T) {
	all := []kill{{program: controller}, {program: agent, name: "x"}, {program: agent, name: "y"}, {program: vswitchd}}
	if got := filterKinds(all, nil); len(got) != len(all) {
		t.Errorf("without kinds %d of %d are left", len(got), len(all))
	}
	got := filterKinds(all, []string{"agent"})
	if len(got) != 2 || got[0].name != "x" || got[1].name != "y" || all[0].program != controller {
		t.Errorf("agents: %+v of %+v", got, all)
	}
}
