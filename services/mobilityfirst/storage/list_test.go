package storage

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/services/mobilityfirst/custody"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/nodeapi"
)

// nodeWith returns a node with chunks that does not run.
func nodeWith(keep time.Duration, all ...Kept) *Node {
	n := &Node{Options: Options{Keep: keep}, byName: map[frame.GUID]*destination{}, kept: map[custody.ID]struct{}{}}
	for _, k := range all {
		n.add(k)
	}
	return n
}

// Whatever the pages, the chunks of a node are listed completely, once, in order and summed up,
// without expired ones.
func TestCustody(t *testing.T) {
	now := time.Now()
	rapid.Check(t, func(t *rapid.T) {
		const keep = time.Hour
		var all []Kept
		for i := range rapid.IntRange(0, 40).Draw(t, "chunks") {
			k := Kept{ID: custody.ID{Flow: 1, Number: uint64(i)}, Size: int64(i), Since: now.Add(-time.Duration(rapid.IntRange(0, 100).Draw(t, "since")) * time.Second)}
			k.Source[3], k.Destination[2] = rapid.ByteRange(0, 3).Draw(t, "from"), rapid.ByteRange(1, 6).Draw(t, "to")
			if rapid.Bool().Draw(t, "until known") {
				k.expires = k.Since.Add(time.Duration(rapid.IntRange(1, 5000).Draw(t, "until")) * time.Second)
			}
			all = append(all, k)
		}
		n := nodeWith(keep, all...)
		want := map[nodeapi.Pair]nodeapi.Custody{}
		for _, k := range all {
			if rapid.IntRange(0, 3).Draw(t, "over") == 0 {
				delete(n.kept, k.ID)
				continue
			}
			pair := nodeapi.Pair{Destination: k.Destination, Source: k.Source}
			x, is := want[pair]
			over := k.Since.Add(keep)
			if !k.expires.IsZero() && k.expires.Before(over) {
				over = k.expires
			}
			if !is {
				x = nodeapi.Custody{Pair: pair, Oldest: k.Since, Deadline: over}
			}
			x.Chunks, x.Bytes = x.Chunks+1, x.Bytes+k.Size
			if k.Since.Before(x.Oldest) {
				x.Oldest = k.Since
			}
			if over.Before(x.Deadline) {
				x.Deadline = over
			}
			want[pair] = x
		}
		q := nodeapi.CustodyQuery{Limit: rapid.IntRange(1, 10).Draw(t, "limit")}
		if rapid.Bool().Draw(t, "of one") {
			q.For[2] = 3
			for pair := range want {
				if pair.Destination != q.For {
					delete(want, pair)
				}
			}
		}
		got := map[nodeapi.Pair]nodeapi.Custody{}
		for more := true; more; {
			p := n.Custody(q)
			if err := p.Check(q); err != nil {
				t.Fatal(err)
			}
			for _, x := range p.Rows {
				got[x.Pair], q.After = x, x.Pair
			}
			more = p.More
		}
		if len(got) != len(want) {
			t.Fatalf("%d rows, want %d", len(got), len(want))
		}
		for pair, x := range want {
			if got[pair] != x {
				t.Errorf("%v: %+v, want %+v", pair, got[pair], x)
			}
		}
	})
}

// A page is found among many names, and all chunks of one name are counted, even if that takes
// several turns.
func TestCustodyOfMany(t *testing.T) {
	var all []Kept
	add := func(to frame.GUID, number int) {
		all = append(all, Kept{ID: custody.ID{Destination: to, Number: uint64(number)}, Size: 1, Since: time.Unix(1, 0)})
	}
	for i := range 3*maxCounted + 5 {
		add(frame.GUID{1}, i)
	}
	for i := range 5000 {
		add(frame.GUID{2, byte(i >> 8), byte(i)}, 0)
	}
	n := nodeWith(time.Hour, all...)
	p := n.Custody(nodeapi.CustodyQuery{Limit: 10})
	if len(p.Rows) != 10 || !p.More || p.Rows[0].Chunks != 3*maxCounted+5 {
		t.Fatalf("%+v", p)
	}
	if !slices.IsSortedFunc(p.Rows, func(a, b nodeapi.Custody) int { return a.Compare(b.Pair) }) || p.Rows[9].Destination != (frame.GUID{2, 0, 8}) {
		t.Errorf("%+v", p.Rows)
	}
}

// A node on a disk with less room than it may use logs that when it starts.
func TestSmallDiskIsLogged(t *testing.T) {
	var log strings.Builder
	n, err := New(Options{Dir: t.TempDir(), Size: 1 << 50, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer n.store.Close()
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=WARN") || !strings.Contains(text, "less room") || !strings.Contains(text, "size=1048576GiB") {
		t.Errorf("the log is %q", text)
	}
}

// A node reports the used part of its disk, which is larger if the disk has less room than the node
// may use.
func TestReport(t *testing.T) {
	n := nodeWith(time.Hour)
	n.room.used = 1 << 20
	for _, c := range []struct {
		dir  string
		size int64
		want float64
	}{{t.TempDir(), 4 << 20, 0.25}, {"/proc", 4 << 20, 1}} { // where there is no room at all
		n.Dir, n.Size = c.dir, c.size
		r := n.Report()
		r.Name = frame.GUID{1}
		if err := r.Check(); err != nil || r.Load() != c.want {
			t.Errorf("%s: %+v, load %v, %v", c.dir, r.Storage, r.Load(), err)
		}
	}
}
