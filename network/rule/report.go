package rule

import (
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// Report tells what a change has sent.
type Report struct {
	// Switches are those that were sent something, ascending.
	Switches []SwitchReport
	// Waves tells how long each wave took until its last confirmation; a change
	// without waves has one.
	Waves []time.Duration
	// Deleting is how long the deletions took, after the last wave.
	Deleting time.Duration
}

// SwitchReport counts the changes of one switch's rules.
type SwitchReport struct {
	Switch                   openflow.DatapathID
	Added, Modified, Deleted int
}

// Total adds up what all switches were sent.
func (r *Report) Total() (added, modified, deleted int) {
	for _, s := range r.Switches {
		added, modified, deleted = added+s.Added, modified+s.Modified, deleted+s.Deleted
	}
	return added, modified, deleted
}
