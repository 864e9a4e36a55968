// Package tree computes how channels go through the network, as data.
//
//   - A [Tree] leads a channel from the port of its ingress gateway to the switches behind
//     which it is watched, over each link at most once. [Grow] makes a tree from the previous one:
//     links that are still usable stay, missing switches are reached by the fewest additional
//     links, and branches that nobody watches are removed.
//   - [Reservations] holds the trees of all channels, and the bandwidth that they leave each other.
//   - [Groups] distributes the copies for viewers at a switch among groups.
//   - A [Plan] combines these for one channel, and its Program returns the rules, the groups,
//     and the meter at the switch where the channel enters.
//
// Nothing here does any I/O. Start reading at Grow in grow.go.
package tree
