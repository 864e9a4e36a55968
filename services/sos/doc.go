// Package sos is the controller's side of SOS: it watches for the first packet of
// whitelisted TCP connections, chooses an agent near each end, asks both, writes the rules
// that put them into the connection, and looks after the session until it has ended and its
// rules are gone.
//
// Start reading at Service and its HandlePacketIn.
//
// Pure functions compute what a session needs in the switches: Layout gives the rules
// between an end host and its agent, Steering those between two agents, Punts those that
// bring a connection's first packet to the controller. The choice of agents (Choose) and
// the matching of the whitelist are pure as well. Service does the I/O around them: it owns
// every goroutine and ends with its Run.
//
// The parts of Service follow a connection: selection decides whether it is carried, setups
// creates a session for it (each by a setup), sessions lists it, pairs holds the path
// between its agents, reconciler keeps it up to date with the network, endings and resets
// end it, and history records it. A recovery is a start that finds sessions at agents.
//
// Whatever fails, the packet that is being held is released to default forwarding: a
// connection that SOS cannot help looks as if SOS were not there.
package sos
