package kit

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestPages checks that pages of any size show every item once and in order, also if the item that
// the cursor names has been removed.
func TestPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z &=%"]{1,4}`), 0, 30, rapid.ID).Draw(t, "names")
		slices.Sort(names)
		var all []Item[int]
		for _, n := range names {
			all = append(all, Item[int]{Name: n})
		}
		limit := rapid.IntRange(1, 10).Draw(t, "limit")
		var seen []string
		for c := (Cursor{Limit: limit}); ; {
			items, link := After(all, func(x Item[int]) string { return x.Name }, c)
			if len(items) > limit || link != "" && len(items) != limit {
				t.Fatalf("%d items of at most %d, and then %q", len(items), limit, link)
			}
			for _, x := range items {
				seen = append(seen, x.Name)
			}
			if link == "" {
				break
			}
			target, ok := strings.CutSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
			query, err := url.Parse(target)
			if !ok || err != nil || query.Query().Get("limit") != fmt.Sprint(limit) {
				t.Fatalf("link %s: %v", link, err)
			}
			c.After = query.Query().Get("after")
			if rapid.Bool().Draw(t, "removed") {
				all = slices.DeleteFunc(all, func(x Item[int]) bool { return x.Name == c.After })
			}
		}
		if !slices.Equal(seen, names) {
			t.Fatalf("pages of %d show %q of %q", limit, seen, names)
		}
	})
}
