package experiment

import (
	"slices"
	"strings"
	"testing"
)

func TestOnly(t *testing.T) {
	e := Experiment{Name: "e", Varies: []string{"loss"}}
	all := []float64{0, 1e-4, 1e-3}
	for _, c := range []struct {
		settings []string
		want     []float64
		fault    string
	}{
		{nil, all, ""},
		{[]string{"loss=0.1,0"}, []float64{0, 1e-3}, ""},
		{[]string{"loss=0", "loss=0.01"}, []float64{0, 1e-4}, ""},
		{[]string{"loss=7"}, nil, "there are 0, 0.01, 0.1"},
		{[]string{"rtt=50ms"}, nil, "e varies loss"},
		{[]string{"loss"}, nil, "NAME=VALUE"},
	} {
		var got []float64
		o, err := ParseOnly(e, c.settings)
		if err == nil {
			got, err = chosen(o, "loss", all, percent)
		}
		switch {
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%v: error %v, want %q", c.settings, err, c.fault)
		case c.fault == "" && (err != nil || !slices.Equal(got, c.want)):
			t.Errorf("%v: %v, %v, want %v", c.settings, got, err, c.want)
		}
	}
	if _, err := ParseOnly(Experiment{Name: "e"}, []string{"loss=0"}); err == nil {
		t.Error("an experiment that varies nothing accepts a choice")
	}
}
