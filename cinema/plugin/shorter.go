package plugin

import (
	"time"

	"github.com/sluice-net/sluice/cinema/tree"
	"github.com/sluice-net/sluice/network"
)

const (
	// steady is how long links have neither come nor gone until channels are led by shorter ways:
	// one that comes and goes moves nothing.
	steady = 5 * time.Second
	// shorterEvery is how often a shorter way is looked for otherwise: others may have left room.
	shorterEvery = 30 * time.Second
)

// moved notes that links have come or gone.
func (w *ways) moved() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed = time.Now()
}

// looks says whether it is time to look for a shorter way for a channel, and notes that.
func (w *ways) looks(l *line) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, since := time.Now(), w.changed.Add(steady)
	if now.Before(since) || now.Before(l.former.until) || l.looked.After(since) && now.Sub(l.looked) < shorterEvery {
		return false
	}
	l.looked = now
	return true
}

// shorter is a tree of fewer links for a channel than the one that it has, if there is one to
// which it can move with each packet arriving once; otherwise the one that it has.
func (w *ways) shorter(channel string, l *line, t tree.Tree, want tree.Want, top *network.Topology) tree.Tree {
	if len(t.Edges) < 2 || !w.looks(l) || !w.there(t, top) {
		return t
	}
	if next, is := w.book.Shorter(channel, top, want); is {
		return next
	}
	return t
}
