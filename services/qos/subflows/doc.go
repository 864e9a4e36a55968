// Package subflows places the further subflows of large MPTCP connections on the widest
// paths, while all other traffic goes by default forwarding and never comes to the controller.
//
// The mechanism is that of chapter 5 of the QoS dissertation of 2018. A host whose connection
// has become large opens a further subflow, and marks its SYN with a DSCP of the experimental
// pool (RFC 2474, section 6). A rule punts SYNs with that mark to the controller. The service
// reads the token of the connection from the MP_JOIN option (RFC 8684, section 3.2), finds the
// paths of the connection in one search, each the widest that those before it have left
// (algorithms 3 and 4), and forwards each subflow along the next of them. Packets with the mark
// that join nothing are forwarded like the rest, and are counted. The differences:
//
//   - A token is unique within the host that has chosen it, so a connection is named by its
//     receiver and the token.
//   - The width of a link is how much more the connection would get by a further subflow there:
//     what nobody uses, or the growth of its share beside the subflows that have been placed there.
//     If every link is full, the free capacity is zero everywhere, and choosing by it would be
//     random.
//   - Of the shortest paths the widest is taken, or one that is longer by two links at most and
//     twice as wide: the widest of all winds through the whole network for the last percent.
//   - What was just placed counts until measurements show it. Subflows get nothing of what is
//     promised (package reserve).
//   - Both directions of a link count, since data goes against the SYN in a download.
//   - The search is ordered by width. As printed, algorithm 4 does not say so, and with a plain
//     queue it finds narrower paths.
//   - A subflow is moved when a link of its path fails, and when its path is full and another
//     would give it half as much again. The store holds the paths: a restart moves nothing.
//
// Large connections of plain TCP that samples of packets reveal can be placed like subflows.
//
// The rules of subflows are in the stage of default forwarding, above its rules: packets with a
// promised path, or of another service, are forwarded as if there were no subflows.
//
// Start reading at Service, which finds joins among packets and owns all goroutines. A table
// holds the subflows, linkLoads computes how wide links are, a chooser chooses paths, and a
// placer changes one subflow at a time.
package subflows
