package storage

import (
	"bytes"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/nodeapi"
)

// lookedAtOnce is how many chunks are looked at before others have their turn with what the node knows.
const lookedAtOnce = 4096

// Report says how busy the node is.
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

// Custody lists what the node keeps, by destination and sender. It takes as long as there are chunks for the destinations of a
// page; what comes and goes meanwhile may be missing.
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
		if len(names) <= q.Limit { // there are no others
			return p
		}
		from = names[len(names)-1] // once more, which finds nothing new of it
		q.After = after(q.After, p.Rows)
	}
}

// after is the last row of a page so far.
func after(last nodeapi.Pair, rows []nodeapi.Custody) nodeapi.Pair {
	if len(rows) > 0 {
		return rows[len(rows)-1].Pair
	}
	return last
}

// destinations are the first names from one on for which there may be chunks, in order.
func (n *Node) destinations(from, only frame.GUID, most int) (names []frame.GUID) {
	if !only.IsZero() {
		return []frame.GUID{only}
	}
	compare := func(a, b frame.GUID) int { return bytes.Compare(a[:], b[:]) }
	n.mu.Lock()
	defer n.mu.Unlock()
	for name := range n.of {
		if compare(name, from) < 0 {
			continue
		}
		if names = append(names, name); len(names) == 2*most { // so that it costs little, however many there are
			slices.SortFunc(names, compare)
			names = names[:most]
		}
	}
	slices.SortFunc(names, compare)
	return names[:min(len(names), most)]
}

// senders are what the node keeps for a destination, in the order of who has sent it.
func (n *Node) senders(to frame.GUID) []nodeapi.Custody {
	of := map[frame.GUID]nodeapi.Custody{}
	for at := 0; n.look(to, at, of); at += lookedAtOnce {
	}
	return slices.SortedFunc(maps.Values(of), func(a, b nodeapi.Custody) int { return a.Compare(b.Pair) })
}

// look counts some chunks for a destination, and says whether there are others behind them.
func (n *Node) look(to frame.GUID, at int, of map[frame.GUID]nodeapi.Custody) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.of[to]
	if d == nil || at >= len(d.chunks) {
		return false
	}
	for _, k := range d.chunks[at:min(at+lookedAtOnce, len(d.chunks))] {
		if !n.has(k) {
			continue
		}
		x, is := of[k.Source]
		x.Pair = nodeapi.Pair{Destination: to, Source: k.Source}
		x.Chunks++
		x.Bytes += k.Size
		if !is || k.Since.Before(x.Oldest) {
			x.Oldest = k.Since
		}
		if over := k.deadline(n.Keep); !is || over.Before(x.Deadline) {
			x.Deadline = over
		}
		of[k.Source] = x
	}
	return true
}
