package storage

import (
	"bytes"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/nodeapi"
)

// maxCounted limits the chunks that are counted without releasing the mutex.
const maxCounted = 4096

// Report returns the node's load.
func (n *Node) Report() nodeapi.Report {
	c, size := n.Counters(), n.Size
	var disk unix.Statfs_t
	if unix.Statfs(n.Dir, &disk) == nil {
		size = min(size, c.Bytes+int64(disk.Bavail)*disk.Bsize)
	}
	return nodeapi.Report{Storage: &nodeapi.StorageReport{
		Chunks: c.Chunks, Destinations: c.Destinations, Bytes: c.Bytes, Size: size, Kept: c.Kept, HandedOn: c.HandedOn, Refused: c.Refused, Lost: c.Lost,
	}}
}

// Custody lists the stored chunks by destination and sender. Its cost is linear in the chunks for
// the destinations of the page; chunks that are added or removed meanwhile may be missing.
func (n *Node) Custody(q nodeapi.CustodyQuery) (p nodeapi.CustodyPage) {
	p.Rows = []nodeapi.Custody{}
	for from := q.After.Destination; ; {
		names := n.destinations(from, q.For, q.Limit+1)
		for _, to := range names {
			for _, row := range n.senders(to) {
				if row.Compare(q.After) <= 0 {
					continue
				}
				if len(p.Rows) == q.Limit {
					p.More = true
					return p
				}
				p.Rows = append(p.Rows, row)
			}
		}
		if len(names) <= q.Limit { // these are all
			return p
		}
		from = names[len(names)-1] // it is counted again, which adds no row
		q.After = lastPair(q.After, p.Rows)
	}
}

// lastPair returns the pair of the last row so far, or last if there is none.
func lastPair(last nodeapi.Pair, rows []nodeapi.Custody) nodeapi.Pair {
	if len(rows) > 0 {
		return rows[len(rows)-1].Pair
	}
	return last
}

// destinations returns the first names, in order and beginning with from, for which there may be
// chunks.
func (n *Node) destinations(from, only frame.GUID, limit int) (names []frame.GUID) {
	if !only.IsZero() {
		return []frame.GUID{only}
	}
	compare := func(a, b frame.GUID) int { return bytes.Compare(a[:], b[:]) }
	n.mu.Lock()
	defer n.mu.Unlock()
	for name := range n.byName {
		if compare(name, from) < 0 {
			continue
		}
		if names = append(names, name); len(names) == 2*limit { // bounds the memory, however many there are
			slices.SortFunc(names, compare)
			names = names[:limit]
		}
	}
	slices.SortFunc(names, compare)
	return names[:min(len(names), limit)]
}

// senders returns a row for each sender of chunks for a destination, ordered by sender.
func (n *Node) senders(to frame.GUID) []nodeapi.Custody {
	bySender := map[frame.GUID]nodeapi.Custody{}
	for at := 0; n.countSome(to, at, bySender); at += maxCounted {
	}
	return slices.SortedFunc(maps.Values(bySender), func(a, b nodeapi.Custody) int { return a.Compare(b.Pair) })
}

// countSome counts some chunks for a destination, and reports whether there may be more.
func (n *Node) countSome(to frame.GUID, at int, bySender map[frame.GUID]nodeapi.Custody) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.byName[to]
	if d == nil || at >= len(d.chunks) {
		return false
	}
	for _, k := range d.chunks[at:min(at+maxCounted, len(d.chunks))] {
		if !n.isKept(k) {
			continue
		}
		x, ok := bySender[k.Source]
		x.Pair = nodeapi.Pair{Destination: to, Source: k.Source}
		x.Chunks++
		x.Bytes += k.Size
		if !ok || k.Since.Before(x.Oldest) {
			x.Oldest = k.Since
		}
		if deadline := k.deadline(n.Keep); !ok || deadline.Before(x.Deadline) {
			x.Deadline = deadline
		}
		bySender[k.Source] = x
	}
	return true
}
