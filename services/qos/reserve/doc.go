// Package reserve keeps the book of what has been promised on links, so that no capacity is
// promised twice. Start reading at Book.
//
// A measurement of a link is old by the time it is used: it does not include what has been
// promised since. The monitoring of the QoS dissertation (section 3.3.1) counts measured
// use only, so that two flows that arrive between two polls are both given the same spare
// capacity. Here a promise counts from the moment it is made:
//
//	available = capacity - promises - others
//
// Others is the traffic without a promise: what the link carries, minus what meters and
// queues have passed for promises and for yielding traffic. [Book.Measure] reads both so
// that one includes the other: ports, then meters and queues, then ports again. Whatever
// meters and queues have passed between the middles of two rounds was carried by the links
// between the beginning of the first round and the end of the second. So others is never
// underestimated, however late answers arrive. Traffic that is not known is attributed to
// others. On a link that is full, or not measured, nothing is available.
//
// [Book.EstimateFree] and [Book.MaxAvailable] estimate from what the owners of promises
// observe, at other times than ports are read. They serve for choices that promise nothing,
// and for reporting that a promise is in danger. They use the greater of a flow's latest
// two rates, because switches update the counters of flows only now and then. Before there
// are two, the increase of a link's traffic since the promise was made is attributed to the
// flow, up to its rate.
//
// What two readings show of a promise beyond its rate counts as traffic of others for all
// promises except that one.
//
// The answers to a flow are not counted. What is expected of them on a link is taken to be
// part of its measurement, whether anything is promised to them there or not, up to what
// the flow itself has sent.
//
// A promise covers all its links or none, and holds until its owner releases it. The book
// is kept in memory only: owners store their promises and make them again after a restart.
package reserve
