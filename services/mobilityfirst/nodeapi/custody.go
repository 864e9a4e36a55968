package nodeapi

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// MaxRows is how many rows a page of custody has at most.
const MaxRows = 1000

// Pair is a destination, and a sender of chunks for it.
type Pair struct {
	Destination frame.GUID `json:"destination"`
	Source      frame.GUID `json:"source"`
}

// Compare orders pairs: by destination, then by sender.
func (p Pair) Compare(o Pair) int {
	return cmp.Or(bytes.Compare(p.Destination[:], o.Destination[:]), bytes.Compare(p.Source[:], o.Source[:]))
}

// String is both names, as ParsePair reads them.
func (p Pair) String() string { return p.Destination.String() + "/" + p.Source.String() }

// ParsePair reads a pair: two names of 40 hexadecimal digits, with a slash between.
func ParsePair(text string) (p Pair, err error) {
	to, from, is := strings.Cut(text, "/")
	if !is {
		return p, fmt.Errorf("%q: want two names with a slash between", text)
	}
	if p.Destination, err = frame.ParseGUID(to); err == nil {
		p.Source, err = frame.ParseGUID(from)
	}
	return p, err
}

// Custody is what a storage node keeps of one sender for one destination.
type Custody struct {
	Pair
	Chunks int   `json:"chunks"`
	Bytes  int64 `json:"bytes"`
	// Oldest is when the first of them came.
	Oldest time.Time `json:"oldest"`
	// Deadline is when the first of them is over, as far as the node knows: of a chunk from before its start
	// that is when it has kept it as long as it keeps any.
	Deadline time.Time `json:"deadline"`
}

// CustodyQuery says which rows are wanted.
type CustodyQuery struct {
	// After is the last row that is known; the zero value for none.
	After Pair
	// For is the only destination that is wanted; the zero value for all.
	For frame.GUID
	// Limit is how many rows, from 1 to MaxRows.
	Limit int
}

// CustodyPage is an answer: rows in order.
type CustodyPage struct {
	Rows []Custody `json:"rows"`
	// More says that there are others behind them.
	More bool `json:"more"`
}

// Check says what of an answer to a query can't be.
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
