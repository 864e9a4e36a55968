package kit

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Cursor selects a page of a list. Items are sorted by name, so that a client which reads page after
// page sees each item that exists all the time exactly once, although others are added and removed.
type Cursor struct {
	After string `query:"after" doc:"Return only items whose name comes after this one"`
	Limit int    `query:"limit" minimum:"1" maximum:"100000" doc:"Return at most this number of items; without it, all"`
}

// Page is an answer that lists items.
type Page[I any] struct {
	Link string `header:"Link" doc:"Where the next page is, if there is one: <?after=NAME&limit=N>; rel=\"next\" (RFC 8288)"`
	Body []I
}

// After returns the page of the items that a cursor selects, and the link to the next page, which is
// empty for the last one. The items must be sorted by name.
func After[T any](all []T, name func(T) string, c Cursor) (items []T, next string) {
	if c.After != "" {
		i, found := slices.BinarySearchFunc(all, c.After, func(x T, after string) int { return strings.Compare(name(x), after) })
		if found {
			i++
		}
		all = all[i:]
	}
	if c.Limit == 0 || len(all) <= c.Limit {
		return all, ""
	}
	all = all[:c.Limit]
	return all, fmt.Sprintf(`<?after=%s&limit=%d>; rel="next"`, url.QueryEscape(name(all[c.Limit-1])), c.Limit)
}
