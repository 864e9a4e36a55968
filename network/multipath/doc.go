// Package multipath computes rules by destination, which lead packets over all ways that are
// equally good, without asking a controller.
//
// On every switch a destination has the links by which it comes nearer. If there are several, a
// group of type SELECT spreads packets over them, by the switch's hash of their headers: all
// packets of a connection go the same way.
//
// A group has more buckets than links, its places, and each link has several of them, in
// proportion to its capacity ([Spread]). When a link is gone its places are given to the others,
// one by one, and theirs stay as they are: no connection moves but those that have to.
//
// It is pure: [Planner.Plan] says which rules and groups switches are to have for a destination,
// and in which order they are to be written so that no packet goes in a circle.
package multipath
