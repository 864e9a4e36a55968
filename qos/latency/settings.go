package latency

import (
	"cmp"
	"time"
)

// Settings are what the configuration says.
type Settings struct {
	// Quota is the share of a link's capacity that a class has guaranteed which
	// names no rate.
	Quota float64
	// Interval is the time between two readings of counters.
	Interval time.Duration
	// Timeout bounds the provisioning of one class.
	Timeout time.Duration
	// Settle is how long after a start paths are left as they were, until the
	// network has been discovered again.
	Settle time.Duration
	// OnConnect gives every port its bucket when a switch connects; otherwise a port gets
	// it with the first class that leaves by it.
	OnConnect bool
}

func (t Settings) withDefaults() Settings {
	t.Quota = cmp.Or(t.Quota, 0.05)
	t.Interval = cmp.Or(t.Interval, 5*time.Second)
	t.Timeout = cmp.Or(t.Timeout, 10*time.Second)
	t.Settle = cmp.Or(t.Settle, 15*time.Second)
	return t
}
