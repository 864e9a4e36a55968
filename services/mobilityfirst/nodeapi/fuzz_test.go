package nodeapi

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

// What is said to be a report is refused, or has a kind and a load from 0 to 1.
func FuzzReport(f *testing.F) {
	_, name := owner(1)
	for _, r := range []Report{
		{}, {Name: name, Storage: &StorageReport{Bytes: 1, Size: 2}}, {Name: name, Compute: &ComputeReport{Function: "tr", Load: 0.5}}, {Name: name, Cache: &CacheReport{Pieces: 7}},
	} {
		b, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Report
		if json.Unmarshal(b, &r) != nil || r.Check() != nil {
			return
		}
		if l := r.Load(); r.Kind() == "" || !(l >= 0 && l <= 1) {
			t.Errorf("%s: kind %q, load %v", b, r.Kind(), l)
		}
	})
}

// What is said to be a page of custody is refused, or no longer than was asked for, with times that can be written in any
// zone; and so is a query.
func FuzzCustody(f *testing.F) {
	pair := Pair{Destination: [20]byte{1}, Source: [20]byte{2}}
	page, err := json.Marshal(CustodyPage{Rows: []Custody{{Pair: pair, Chunks: 1}}, More: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(page, CustodyQuery{After: pair, Limit: 5}.values().Encode())
	f.Add([]byte("{}"), "limit=1000&for=x")
	late := strings.Replace(string(page), "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", 2)
	f.Add([]byte(late), CustodyQuery{Limit: 5}.values().Encode())
	f.Fuzz(func(t *testing.T, b []byte, query string) {
		v, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		q, err := parseQuery(v)
		if err != nil {
			return
		}
		if again, err := parseQuery(q.values()); err != nil || again != q {
			t.Errorf("%q is %+v, and %+v, %v", query, q, again, err)
		}
		var p CustodyPage
		if json.Unmarshal(b, &p) != nil || p.Check(q) != nil {
			return
		}
		if len(p.Rows) > q.Limit {
			t.Errorf("%d rows", len(p.Rows))
		}
		for i := range p.Rows {
			p.Rows[i].Oldest, p.Rows[i].Deadline = p.Rows[i].Oldest.UTC(), p.Rows[i].Deadline.UTC()
		}
		if _, err := json.Marshal(p); err != nil {
			t.Error(err)
		}
	})
}
