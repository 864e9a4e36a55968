package network

import (
	"slices"
	"testing"
	"time"
)

// A host whose switch is away is waited for, as long as hosts of such switches are kept, and
// asked at once when it can be, and as often again as others are.
func TestAmendsWaitForTheSwitch(t *testing.T) {
	s := func(n ...float64) (all []time.Duration) {
		for _, x := range n {
			all = append(all, time.Duration(x*float64(time.Second)))
		}
		return all
	}
	for name, c := range map[string]struct {
		away, back time.Duration // when the switch is not there
		asked      []time.Duration
		ends       time.Duration
	}{
		"there all the time": {0, 0, s(1, 3, 8, 20), 20 * time.Second},
		"back soon":          {0, 2 * time.Second, s(1, 2, 3, 5, 10, 22), 22 * time.Second},
		"back late":          {0, 50 * time.Second, s(1, 3, 8, 20, 50, 51, 53, 58, 70), 70 * time.Second},
		"not back":           {0, time.Hour, s(1, 3, 8, 20), time.Minute},
		"back too late":      {0, 61 * time.Second, s(1, 3, 8, 20), time.Minute},
		"goes and comes":     {10 * time.Second, 30 * time.Second, s(1, 3, 8, 20, 30, 31, 33, 38, 50), 50 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var a amends
			began := time.Now()
			a.note(&amend{begun: began, since: began})
			var asked []time.Duration
			var ended time.Duration
			for at := time.Duration(0); at <= 2*time.Minute && ended == 0; at += amendEvery {
				ask, left := a.due(began.Add(at), func(PortRef) bool { return at < c.away || at >= c.back })
				if len(ask) > 0 {
					asked = append(asked, at)
				}
				if !left {
					ended = at
				}
			}
			if !slices.Equal(asked, c.asked) || ended != c.ends {
				t.Errorf("asked at %v until %v, want %v until %v", asked, ended, c.asked, c.ends)
			}
		})
	}
}
