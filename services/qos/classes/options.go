package classes

import (
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/kit"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/qos/reserve"
	"github.com/sluice-net/sluice/store"
)

// OwnerName is the name of the service as an owner of rules.
const OwnerName = "qos-latency"

// MaxClasses bounds the classes.
const MaxClasses = 4096

// Options holds what New needs.
type Options struct {
	Network kit.Network
	Rules   kit.Ledger
	Book    *reserve.Book
	Store   store.Store
	Log     *slog.Logger
	// Publish publishes an event.
	Publish func(kind string, attrs any)
	// Databases gives access to the databases of the switches, which hold the queues.
	Databases Databases
	// Configured holds the classes of the configuration, by name.
	Configured map[string]*Class
	// Critical gives access to critical flows, which are ended if a class covers all their packets.
	Critical Critical
	// Treatments informs services that carry connections about classes; nil if there are no such
	// services.
	Treatments *network.Treatments
	// Quota is the share of a link's capacity that is guaranteed to a class without a rate of its
	// own.
	Quota float64
	// Interval is the time between two readings of counters.
	Interval time.Duration
	// Settle is how long after a start routes are not changed, because the network has to be
	// discovered again first.
	Settle time.Duration
	// OnConnect gives every port its token bucket when a switch connects; otherwise a port
	// gets it with the first class that leaves by it.
	OnConnect bool
}

// Critical manages the flows to which other services have promised bandwidth. Rules of classes win
// over the rules of such flows.
type Critical interface {
	// Within returns the keys of the promises to those flows all of whose packets the matches
	// cover.
	Within([]openflow.Match) []reserve.Key
	// GiveWay ends the flows that Within selects, because the class that to names has their packets
	// now.
	GiveWay(m []openflow.Match, to string)
}

func portRef(d openflow.DatapathID, port uint32) topology.PortRef {
	return topology.PortRef{Switch: d, Port: port}
}

// place is a port of a switch by which packets of a class leave.
type place = topology.PortRef

const (
	// debounce is how long changes of the network are collected before they are handled.
	// resync is the time after which classes that could not be placed are tried again.
	debounce = 100 * time.Millisecond
	resync   = 5 * time.Second
	// maxMoves bounds the classes that are moved at once.
	maxMoves = 16
)
