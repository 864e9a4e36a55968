// Package sos is the controller's side of SOS. It watches for the first packets of whitelisted TCP
// connections, chooses an agent near each end, asks both agents, and writes the rules that redirect
// the connection through them. It then maintains the session until the session has ended and its
// rules are gone.
//
// Start reading at Service and its HandlePacketIn.
//
// Pure functions compute what a session needs in the switches: Layout returns the rules between an
// end host and its agent, Steering those between two agents, and Punts those that send a
// connection's first packet to the controller. The choice of agents (Choose) and the matching of
// the whitelist are pure as well. Service does the I/O around them: it owns every goroutine and
// ends with its Run.
//
// The parts of Service follow a connection. selection decides whether it is carried by agents.
// setups creates a session for it, and a setup establishes one session. sessions lists the
// sessions, pairs holds the path between two agents, and reconciler keeps sessions up to date with
// the network. endings and resets end a session, and history records it. A recovery is a start that
// finds sessions at agents.
//
// If a set-up fails, the packet that is being held is released to default forwarding. A connection
// that SOS cannot help then behaves as if SOS were not there.
package sos
