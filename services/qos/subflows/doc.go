// Package subflows places the further subflows of large MPTCP connections on the widest paths,
// while all other traffic is forwarded by default and never comes to the controller.
//
// The mechanism is that of chapter 5 of the QoS dissertation of 2018. A host whose connection has
// become large opens a further subflow, and marks its SYN with a DSCP of the experimental pool (RFC
// 2474, section 6). A rule punts SYNs with that mark to the controller. The service reads the token
// of the connection from the MP_JOIN option (RFC 8684, section 3.2). It finds the paths of the
// connection in one search, each the widest in the capacity that the paths before it have left
// (algorithms 3 and 4), and forwards each subflow along the next of them. Packets with the mark
// that join no connection are forwarded by default, and are counted. This package differs from the
// dissertation in these points:
//
//   - A token is unique within the host that has chosen it, so a connection is identified by its
//     receiver and the token.
//   - The width of a link is the bandwidth that a further subflow there would add to the
//     connection: the link's unused capacity, or the growth of the connection's share beside the
//     subflows that have been placed there. If every link is full, the free capacity is zero
//     everywhere, and a choice by free capacity would be random.
//   - A subflow takes the widest of the shortest paths, or a path that is longer by two links at
//     most and twice as wide: the widest of all paths winds through the whole network for the last
//     percent.
//   - The expected load of a subflow that was just placed counts until measurements show it, or
//     the subflow has ended. Subflows get nothing of the bandwidth that is promised (package
//     reserve).
//   - Both directions of a link count, since in a download data flows against the SYN.
//   - The search is ordered by width. As printed, algorithm 4 does not say so, and with a plain
//     queue it finds narrower paths.
//   - A subflow is moved when a link of its path fails, and when its path is full and another
//     would give it half as much again. The paths of a new subflow are read a few times a second,
//     since regular readings show load that has ended. The store holds the paths: a restart moves
//     nothing.
//
// Large connections of plain TCP that are found by samples of packets can be placed like subflows.
//
// The rules of subflows are in the stage of default forwarding, above its rules: packets with a
// promised path, or of another service, are forwarded as if there were no subflows.
//
// Start reading at Service, which finds joins among packets and owns all goroutines. A table holds
// the subflows, linkLoads computes the widths of links, a chooser chooses paths, and a placer
// changes one subflow at a time. A watchList holds the subflows whose paths are read often.
package subflows
