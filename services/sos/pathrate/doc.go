// Package pathrate finds and holds the rate of a path, for all connections of one sender on the
// path together. The connections therefore need not find the rate one by one, nor by overfilling a
// queue.
//
// Start reading at Control. It takes samples of the path's connections (Sample) and returns the
// rate at which they may send together (Pace). It is a state machine without a clock, a lock or a
// socket; services/sos/agent provides the samples and paces the sockets.
//
// ShareInGroups divides the pace among the users of the path, and Divide divides links among the agents
// that send on them.
//
// Sources: Careful Resume (RFC 9959) for the start at a remembered rate, its
// validation and its retreat; RFC 9040 for sharing knowledge among connections; HyStart++ (RFC
// 9406) for leaving the start by delay.
package pathrate
