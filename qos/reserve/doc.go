// Package reserve is the book of what has been promised on links, so that no
// capacity is promised twice.
//
// A measurement of a link is old by the time it is used: what has been promised
// since is not in it. The monitoring of the QoS dissertation (section 3.3.1) counts
// measured use only, so that two flows that arrive between two polls are both given
// the same spare capacity. Here a promise counts from the moment it is made. As the
// flow's own traffic appears in the measurement, only the part that is not yet seen
// there counts beside it:
//
//	available = capacity - used - sum of max(0, promised - seen)
//
// "Seen" is the greater of a flow's latest two rates: its counters and those of ports are
// not read at the same moment, and switches bring those of flows up to date only now and
// then. Before there are two, what a link carries more than when the promise was made is
// taken for the flow's, up to its rate. A wrong guess is about traffic that nothing is
// promised to, for two readings; promises themselves always count in full.
//
// What two readings show of a promise beyond its rate is traffic of others for all promises
// but itself.
//
// The answers to a flow are not counted. What is expected of them on a link is taken to
// be part of its measurement, whether anything is promised to them there or not.
//
// Traffic that yields to promises is entered as well, so that its part of the use can
// be told from that of traffic which nobody holds back.
//
// A promise covers all its links or none, and holds until its owner gives it up. The
// book is kept in memory only: owners store their promises and make them again after
// a restart.
package reserve
