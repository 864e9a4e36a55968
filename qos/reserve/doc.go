// Package reserve is the book of what has been promised on links, so that no
// capacity is promised twice.
//
// A measurement of a link is old by the time it is used: what has been promised
// since is not in it. The monitoring of the QoS dissertation (section 3.3.1) counts
// measured use only, so that two flows that arrive between two polls are both given
// the same spare capacity. Here a promise counts from the moment it is made:
//
//	available = capacity - promises - others
//
// Others is the traffic that nobody has been promised anything for: what the link carries,
// less what meters and queues have passed of promises, and of traffic that yields to them.
// [Book.Measure] reads both so that the one includes the other: ports, then meters and
// queues, then ports once more. What these have passed between the middles of two rounds has
// gone over the links between the beginning of the first and the end of the second. Others is
// thus never taken for less than it was, however late answers come. Where something is not
// known, it is taken for traffic of others; of a link that is full, or not measured, nothing is
// available.
//
// [Book.Room] and [Book.Left] estimate from what the owners of promises observe, at other times
// than ports are read: for choices that promise nothing, and for telling that a promise is
// endangered. There the greater of a flow's latest two rates counts, as switches bring
// the counters of flows up to date only now and then. Before there are two, what a link carries more
// than when the promise was made is taken for the flow's, up to its rate.
//
// What two readings show of a promise beyond its rate is traffic of others for all promises
// but itself.
//
// The answers to a flow are not counted. What is expected of them on a link is taken to
// be part of its measurement, whether anything is promised to them there or not, up to what the
// flow itself has sent.
//
// A promise covers all its links or none, and holds until its owner gives it up. The
// book is kept in memory only: owners store their promises and make them again after
// a restart.
package reserve
