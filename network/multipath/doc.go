// Package multipath computes rules by destination, which forward packets over all equally good
// paths without asking a controller. Start reading with [Planner.Plan].
//
// On every switch a destination has next hops: the links on which packets come closer to it. If
// there are several, a group of type SELECT spreads packets over them, by the switch's hash of
// their headers: all packets of a connection take the same path.
//
// A group has more buckets than links, and each link has several of them, in proportion to its
// capacity ([Spread]). When a link is gone, its buckets are given to the others, one by one, and
// all other buckets stay the same, so that only the connections on that link move.
//
// The package is pure: [Planner.Plan] returns the rules and groups that switches are to have for
// a destination, and the order in which to write them so that no packet loops.
package multipath
