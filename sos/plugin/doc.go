// Package plugin is the controller's side of SOS: it watches for the first
// packet of whitelisted TCP connections, chooses an agent near each end, asks
// both, writes the rules that put them into the connection, and takes care of
// the session until it has ended and its rules are gone.
//
// What a session needs in the switches is computed by pure functions: Layout
// gives the rules between an end host and its agent, Steering those between two
// agents, Punts those that bring a connection's first packet here. Choosing
// agents (Choose) and matching the whitelist are pure as well. Service does the
// I/O around them: it owns every goroutine and ends with its Run. Its parts follow a
// connection: selection says whether it is carried, setups makes a session of it (each by a
// setup), sessions lists it, pairs has the way between its agents, keeper keeps it in step
// with the network, endings and resets end it, and history remembers it. A recovery is a
// start that finds sessions at agents.
//
// Whatever fails, the packet that is being held goes on by default forwarding:
// a connection that SOS cannot help looks as if SOS were not there.
package plugin
