// Package subflow places the further subflows of large MPTCP connections on the widest
// paths, while all other traffic goes by default forwarding and never comes to the controller.
//
// The mechanism is that of chapter 5 of the QoS dissertation of 2018. A host whose connection
// has become large opens a further subflow, and marks its SYN with a DSCP of the experimental
// pool (RFC 2474, section 6). A rule brings SYNs with that mark to the controller. It reads the
// token of the connection from the MP_JOIN option (RFC 8684, section 3.2), finds the paths of
// the connection at once, each the widest that those before it have left (algorithms 3 and 4),
// and leads each subflow along the next of them. What has the mark and joins nothing goes like
// the rest, and is counted. What is different:
//
//   - A token is unique within the host that has chosen it, so a connection is named by its
//     receiver and the token.
//   - The width of a link is what the connection would get more by a further subflow there: what
//     nobody uses, or what its share grows by beside the subflows that have been placed there. Where
//     every link is full, what is left is nothing anywhere, and would choose at random.
//   - Of the shortest paths the widest is taken, or one that is longer by two links at most and
//     twice as wide: the widest of all winds through the whole network for the last percent.
//   - What has just been given counts until measurements can show it. Nothing is given of what
//     is promised (package reserve).
//   - Both directions of a link count, since data goes against the SYN in a download.
//   - The search is ordered by width. As printed, algorithm 4 does not say so, and with a plain
//     queue it finds narrower paths.
//   - A subflow is moved when a link of its path dies, and when its path has filled and
//     another would give it half as much again. Paths stand in the store: a restart moves nothing.
//
// Large connections of plain TCP, as samples of packets show them, can be led as subflows are.
//
// Its rules stand in the stage of default forwarding, above that: whatever has been promised
// another way, or is another service's, goes as if there were no subflows.
//
// Service finds joins among packets and owns all goroutines; a table has the subflows; loads
// say how wide links are; a placer has one subflow changed at a time.
package subflow
