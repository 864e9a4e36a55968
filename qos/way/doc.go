// Package way has what is done with the way of a flow through the switches, whoever has
// chosen it: the rules that lead the flow there and its answers back, the order in which
// switches are written, and whether the way still stands. Its functions are pure; what they
// need to know of the network is a [State].
package way
