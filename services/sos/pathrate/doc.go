// Package pathrate finds and holds the rate of a path, for all connections of a sender on
// it together. So the connections neither wait for each other to find the rate, nor find it
// by overfilling a queue.
//
// Start reading at Control: it takes samples of the path's connections (Sample) and returns
// how fast they may send together (Pace). It is a state machine without a clock, a lock or
// a socket; services/sos/agent provides the samples and paces the sockets.
//
// Sources: Careful Resume (draft-ietf-tsvwg-careful-resume) for the start at a remembered
// rate, its validation and its retreat; RFC 9040 for sharing what is known among
// connections; HyStart++ (RFC 9406) for leaving the start by delay.
package pathrate
