// Package tree is the way of a channel through the network, as data.
//
//   - A [Tree] leads a channel from the port of its ingress gateway to the switches behind
//     which it is watched, over each link at most once. [Grow] makes one of what was there
//     before: what is still possible stays, what is wanted is reached by the fewest links
//     more, and what nobody watches goes.
//   - A [Book] has the trees of all channels, and the room that they leave each other.
//   - [Groups] share out the copies for viewers at a switch among groups.
//   - A [Plan] is all of that for one channel, and its Program the rules, the groups, and the
//     meter where it comes in.
//
// Nothing here speaks to anybody. Start reading at Grow in grow.go.
package tree
