package integration

import "time"

const (
	// shortGap is the longest time between two packets that is none: sound has 50 a second.
	shortGap = 25 * time.Millisecond
	// maxGaps bounds those that are remembered.
	maxGaps = 4096
)

// gap is a time in which nothing came.
type gap struct{ from, to time.Time }

// quiet notes a gap before a packet.
func (c *counts) quiet(now time.Time) {
	c.longestSilence = max(c.longestSilence, now.Sub(c.latest))
	if now.Sub(c.latest) > shortGap && len(c.gaps) < maxGaps {
		c.gaps = append(c.gaps, gap{c.latest, now})
	}
}

// waited is until when the viewer waited for packets of a channel at a moment: that itself if
// it did not.
func (v *rawViewer) waited(at time.Time) time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	until := at
	for _, c := range v.flows {
		for _, g := range c.gaps {
			if g.from.Before(at) && g.to.After(until) {
				until = g.to
			}
		}
	}
	return until
}

// flowing says whether all its flows have had packets since a moment.
func (v *rawViewer) flowing(at time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range v.flows {
		if c.latest.Before(at) {
			return false
		}
	}
	return len(v.flows) > 0
}
