package subflows

import (
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/services/qos/guard"
	"github.com/sluice-net/sluice/services/qos/reserve"
	"github.com/sluice-net/sluice/store"
)

// Owner is the owner of the subflows' rules in the ledger, and of their entries in the book of
// promises.
const Owner = "qos-subflow"

// These are limits of the service.
const (
	// maxSubflows bounds the number of subflows, and maxPlacing the number of those that are being
	// placed. maxPlacingEach bounds the latter for each port by which they come in, so that
	// subflows of other ports can be placed meanwhile.
	maxSubflows    = 8192
	maxPlacing     = 256
	maxPlacingEach = 32
	// placeTimeout is how long a placement may take, and how long the cleanup of a failed one. A
	// SYN is held for both (holdTimeout), because otherwise it would be forwarded with the mark.
	placeTimeout = 2 * time.Second
	holdTimeout  = 2*placeTimeout + time.Second
	// meterDelay is how soon after a promise subflows on the promised links are metered.
	meterDelay = 20 * time.Millisecond
)

// Settings holds the operator's settings.
type Settings struct {
	// Enabled reports whether SYNs with the mark are sent to the controller.
	Enabled bool
	// DSCP is the mark of SYNs that join a connection.
	DSCP uint8
	// Paths bounds the number of paths of a connection. If it has more subflows, they share these
	// paths.
	Paths int
	// Most bounds the number of placed subflows that come in by one port.
	Most int
	// Idle is how long a subflow has to be silent until it counts as over, in whole
	// seconds.
	Idle time.Duration
}

// Options holds what New needs.
type Options struct {
	Settings
	Network kit.Network
	Rules   kit.Ledger
	Store   store.Store
	Book    *reserve.Book
	// Guard limits subflows to the bandwidth that is not promised.
	Guard *guard.Guard
	Log   *slog.Logger
	// Publish publishes an event.
	Publish func(kind string, attrs any)
	// Interval is the interval at which counters are read.
	Interval time.Duration
	// Sampled is the source of samples for placing large connections of plain TCP; nil if
	// they are not to be placed.
	Sampled Sampled
}

// Sampled estimates conversations from samples of packets, as a *network.Traffic does.
type Sampled interface {
	Talkers(limit int, of func(stats.Conversation) bool) []stats.Talker
}

// each calls f for every item, for at most maxAtOnce concurrently, and returns when all
// calls have returned.
func each[T any](items []T, f func(T)) { tasks.Each(items, maxAtOnce, f) }

// maxAtOnce bounds the subflows that are changed at once.
const maxAtOnce = 64

// pathsValidFor is how long paths that were found for a connection may be used for its next
// subflows.
const pathsValidFor = 10 * time.Second
