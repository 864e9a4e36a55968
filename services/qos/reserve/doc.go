// Package reserve keeps the book of promises. A promise is capacity that is reserved on links; with
// the book, no capacity is promised twice. Start reading at Book.
//
// A measurement of a link is old by the time it is used: it does not include the traffic of
// promises that were made since. The monitoring of the QoS dissertation (section 3.3.1) counts
// measured use only, so that two flows that arrive between two polls are both given the same spare
// capacity. Here a promise counts from the moment it is made:
//
//	available = capacity - promises - others
//
// Here, others is the traffic without a promise: the traffic on the link, minus the traffic that
// meters and queues have passed for promises and for yielding traffic. (Yielding traffic has no
// promise, and leaves its capacity to promises.) [Book.Measure] reads the counters in an order in
// which one reading includes the other: ports, then meters and queues, then ports again. Whatever
// meters and queues have passed between the middles of two rounds was carried by the links between
// the beginning of the first round and the end of the second. So others is never underestimated,
// however late answers arrive. Traffic of unknown origin is attributed to others. On a link that is
// full, or not measured, nothing is available.
//
// [Book.EstimateFree] and [Book.MaxAvailable] derive estimates from the rates that the owners of
// promises observe, at other times than ports are read. They serve for choices that promise
// nothing, and for reporting that a promise may not be kept. They use the greater of a flow's
// latest two rates, because switches update the counters of flows only now and then. Before there
// are two rates, the increase of a link's traffic since the promise was made is attributed to the
// flow, up to its promised rate.
//
// If two consecutive readings show that the traffic of a promise exceeds its rate, the excess
// counts as traffic of others for all promises except that one.
//
// The answers to a flow are not counted. Their expected rate on a link is taken to be part of the
// link's measurement, whether anything is promised to them there or not, up to the rate of the flow
// itself.
//
// A promise covers all its links or none, and holds until its owner releases it. The book is kept
// in memory only. Owners store their promises and make them again after a restart.
package reserve
