package pathrate

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// tolerance is the share by which a division may differ from the exact one.
const tolerance = 0.005

// demands draws users of a rate.
func demands(most int) *rapid.Generator[[]Demand] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Demand {
		d := Demand{math.Inf(1), float64(rapid.IntRange(1, 100).Draw(t, "weight"))}
		if rapid.Bool().Draw(t, "wants little") {
			d.Wants = rapid.Float64Range(0, 1e10).Draw(t, "wants")
		}
		return d
	}), 1, most)
}

// TestMaxMinShare checks that the sum of the shares is the sum of the demands or the whole rate.
func TestMaxMinShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(1, 1e10).Draw(t, "rate")
		all := demands(50).Draw(t, "all")
		share := MaxMinShare(rate, all)
		given, wanted := 0.0, 0.0
		for _, d := range all {
			given += min(d.Wants, share*d.Weight)
			wanted += d.Wants
		}
		if given > rate*(1+tolerance) || given < min(rate, wanted)*(1-tolerance) {
			t.Errorf("%.0f given of %.0f, %.0f wanted", given, rate, wanted)
		}
	})
}

// TestShareInGroups checks for any groups that what is sent is what is wanted or the whole rate,
// that a group that wants more has as much for its weight as any other, and within its group a user
// that wants more as much for its weight as any other.
func TestShareInGroups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(1, 1e10).Draw(t, "rate")
		groups := rapid.SliceOfN(demands(20), 1, 20).Draw(t, "groups")
		given := ShareInGroups(rate, groups)
		sent, wanted, best := 0.0, 0.0, 0.0 // best is the most that a group sends for its weight
		of, weights, hungry := make([]float64, len(groups)), make([]float64, len(groups)), make([]bool, len(groups))
		for i, users := range groups {
			bestUser := 0.0
			for j, d := range users {
				own := min(d.Wants, given[i][j])
				of[i] += own
				wanted += d.Wants
				weights[i] = max(weights[i], d.Weight)
				hungry[i] = hungry[i] || d.Wants > given[i][j]*(1+tolerance)
				bestUser = max(bestUser, own/d.Weight)
				if given[i][j] > rate*(1+tolerance) {
					t.Fatalf("user %d of group %d may send %v of %v", j, i, given[i][j], rate)
				}
			}
			for j, d := range users {
				if d.Wants > given[i][j]*(1+tolerance) && given[i][j]/d.Weight < bestUser*(1-tolerance) {
					t.Fatalf("user %d of group %d has %v for its weight, another %v", j, i, given[i][j]/d.Weight, bestUser)
				}
			}
			sent += of[i]
			best = max(best, of[i]/weights[i])
		}
		if sent > rate*(1+tolerance) || sent < min(rate, wanted)*(1-tolerance) {
			t.Fatalf("%v is sent of %v, %v wanted", sent, rate, wanted)
		}
		for i := range groups {
			if hungry[i] && of[i]/weights[i] < best*(1-tolerance) {
				t.Fatalf("group %d sends %v for its weight, another %v", i, of[i]/weights[i], best)
			}
		}
	})
}

// TestShareOfOneEach checks that groups of one user each have what the users have without groups.
func TestShareOfOneEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(1, 1e10).Draw(t, "rate")
		users := demands(50).Draw(t, "users")
		share := MaxMinShare(rate, users)
		for i, given := range ShareInGroups(rate, slices.Collect(slices.Chunk(users, 1))) {
			if want := min(share*users[i].Weight, rate); math.Abs(given[0]-want) > 1e-9*want {
				t.Errorf("user %d: %v, want %v", i, given[0], want)
			}
		}
	})
}

// TestShareInGroupsExamples gives the figures of the documentation.
func TestShareInGroupsExamples(t *testing.T) {
	all := Demand{math.Inf(1), 1}
	ten := slices.Repeat([]Demand{all}, 10)
	heavy, little := Demand{math.Inf(1), 3}, Demand{10, 1}
	for _, c := range []struct {
		name   string
		groups [][]Demand
		want   [][]float64
	}{
		{"ten and one", [][]Demand{ten, {all}}, [][]float64{slices.Repeat([]float64{15}, 10), {150}}},
		{"weights within a group", [][]Demand{{heavy, all}, {heavy}}, [][]float64{{112.5, 37.5}, {150}}},
		{"weights of groups", [][]Demand{{heavy, heavy}, {all}}, [][]float64{{112.5, 112.5}, {75}}},
		{"one of a group wants little", [][]Demand{{little, all}, {all}}, [][]float64{{140, 140}, {150}}},
		{"a group wants little", [][]Demand{{little}, ten}, [][]float64{{290}, slices.Repeat([]float64{29}, 10)}},
		{"nobody wants more", [][]Demand{{little, little}, {little}}, [][]float64{{300, 300}, {300}}},
	} {
		for i, given := range ShareInGroups(300, c.groups) {
			for j, got := range given {
				if math.Abs(got-c.want[i][j]) > tolerance*c.want[i][j] {
					t.Errorf("%s: user %d of group %d may send %v, want %v", c.name, j, i, got, c.want[i][j])
				}
			}
		}
	}
}
