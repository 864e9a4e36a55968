package nodeapi

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// MaxRows is the maximum number of rows in a page.
const MaxRows = 1000

// Pair is a destination and a sender of chunks for it.
type Pair struct {
	Destination frame.GUID `json:"destination"`
	Source      frame.GUID `json:"source"`
}

// Compare orders pairs: by destination, then by sender.
func (p Pair) Compare(o Pair) int {
	return cmp.Or(bytes.Compare(p.Destination[:], o.Destination[:]), bytes.Compare(p.Source[:], o.Source[:]))
}

// String returns both names, as ParsePair reads them.
func (p Pair) String() string { return p.Destination.String() + "/" + p.Source.String() }

// ParsePair parses a pair: two names of 40 hexadecimal digits, separated by a slash.
func ParsePair(text string) (p Pair, err error) {
	to, from, ok := strings.Cut(text, "/")
	if !ok {
		return p, fmt.Errorf("%q: want two names with a slash between", text)
	}
	if p.Destination, err = frame.ParseGUID(to); err == nil {
		p.Source, err = frame.ParseGUID(from)
	}
	return p, err
}

// Custody describes the stored chunks of one sender for one destination.
type Custody struct {
	Pair
	Chunks int   `json:"chunks"`
	Bytes  int64 `json:"bytes"`
	// Oldest is when the first of these chunks was stored.
	Oldest time.Time `json:"oldest"`
	// Deadline is when the first chunk expires, as far as the node knows: for a chunk from before
	// the node's start it is the end of the node's own limit.
	Deadline time.Time `json:"deadline"`
}

// CustodyQuery selects rows.
type CustodyQuery struct {
	// After is the last known row; zero selects rows from the first on.
	After Pair
	// For selects a destination; zero selects all.
	For frame.GUID
	// Limit is the maximum number of rows, from 1 to MaxRows.
	Limit int
}

// CustodyPage is an answer with rows in ascending order.
type CustodyPage struct {
	Rows []Custody `json:"rows"`
	// More is set if there are further rows.
	More bool `json:"more"`
}

// Check checks that an answer is possible for a query.
func (p *CustodyPage) Check(q CustodyQuery) error {
	if len(p.Rows) > q.Limit {
		return fmt.Errorf("custody: %d rows, %d were asked for", len(p.Rows), q.Limit)
	}
	last := q.After
	for _, x := range p.Rows {
		if last.Compare(x.Pair) >= 0 || !q.For.IsZero() && x.Destination != q.For {
			return fmt.Errorf("custody: the row of %v is not in order, or was not asked for", x.Pair)
		}
		if x.Chunks < 1 || x.Bytes < 0 {
			return fmt.Errorf("custody: %d chunks of %d bytes for %v", x.Chunks, x.Bytes, x.Destination)
		}
		for _, at := range []time.Time{x.Oldest, x.Deadline} {
			if y := at.UTC().Year(); y < 1 || y > 9999 {
				return fmt.Errorf("custody: a time in the year %d for %v: want 1 to 9999", y, x.Destination)
			}
		}
		last = x.Pair
	}
	if p.More && len(p.Rows) == 0 {
		return fmt.Errorf("custody: no rows, and more behind them")
	}
	return nil
}
