package critical

import (
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/services/qos/guard"
	"github.com/sluice-net/sluice/services/qos/reserve"
	"github.com/sluice-net/sluice/store"
)

// These are limits of the service.
const (
	// maxFlows bounds the number of flows, and maxPlacing the number of flows that are being
	// placed.
	maxFlows   = 16384
	maxPlacing = 256
	// holdTimeout is how long a first packet is held at most. placeTimeout is how long the
	// placement of its flow may take.
	holdTimeout  = 3 * time.Second
	placeTimeout = 2 * time.Second
)

// Options holds what New needs.
type Options struct {
	Network kit.Network
	Rules   kit.Ledger
	Store   store.Store
	Book    *reserve.Book
	// Guard limits best-effort flows to the bandwidth that is not promised.
	Guard *guard.Guard
	Log   *slog.Logger
	// Publish publishes an event.
	Publish func(kind string, attrs any)
	// Interval is the interval at which counters are read.
	Interval time.Duration
	// Configured holds the definitions of the configuration, by name.
	Configured map[string]*Definition
}

const (
	// pressureReadings is the number of consecutive readings that must show that a link cannot keep
	// a promise. tolerance is the part of a rate, in percent, that may be lacking or exceeded.
	pressureReadings = 2
	tolerance        = 5
)
