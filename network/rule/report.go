package rule

import (
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// Report describes the messages that a change has sent to switches.
type Report struct {
	// Switches lists the switches to which something was sent, by ascending identifier.
	Switches []SwitchReport
	// Waves holds the time from the start of each wave to its last confirmation. A change
	// without waves has one.
	Waves []time.Duration
	// Deleting is the time that the deletions took, after the last wave.
	Deleting time.Duration
}

// SwitchReport counts the changes of one switch's rules.
type SwitchReport struct {
	Switch                   openflow.DatapathID
	Added, Modified, Deleted int
}

// Total returns the sums over all switches.
func (r *Report) Total() (added, modified, deleted int) {
	for _, s := range r.Switches {
		added, modified, deleted = added+s.Added, modified+s.Modified, deleted+s.Deleted
	}
	return added, modified, deleted
}
