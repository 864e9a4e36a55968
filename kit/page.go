package kit

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Cursor says which items of a list are wanted. Items stand in the order of their names, so
// that one who asks for page after page meets each that is there all the time once, whatever
// is added and removed meanwhile.
type Cursor struct {
	After string `query:"after" doc:"Only items whose name comes after this one"`
	Limit int    `query:"limit" minimum:"1" maximum:"100000" doc:"At most so many; left out: all"`
}

// Page is an answer that shows several items.
type Page[I any] struct {
	Link string `header:"Link" doc:"Where the next page is, if there is one: <?after=NAME&limit=N>; rel=\"next\" (RFC 8288)"`
	Body []I
}

// After are those of items, in the order of their names, that are wanted, and the link to those
// that follow; empty if none do.
func After[T any](all []T, name func(T) string, c Cursor) (items []T, next string) {
	if c.After != "" {
		i, is := slices.BinarySearchFunc(all, c.After, func(x T, after string) int { return strings.Compare(name(x), after) })
		if is {
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
