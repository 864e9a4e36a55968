// Package discovery finds the links between switches. Start reading with discovery.go.
//
// Each port in turn sends an LLDP frame, a probe; the switch port at which it arrives is the
// other end of the link. One probe proves one direction: a link is two directed links, each with
// its own latency and its own failures.
//
// A probe carries a keyed hash (HMAC-SHA256, truncated to 16 bytes) over the sending port, a
// sequence number and the time at which it was sent. The key is random and never leaves the
// controller, so a host cannot make a probe. A sequence number is accepted once and only for a
// short time, so a host cannot replay a probe. A probe that arrives after that time is late,
// which is no sign of an attack. A host that forwards probes between two ports in both
// directions while they are fresh acts as a cable; [Options].Guard refuses links through ports
// where hosts have been seen.
//
// A port that has just come up is neither link nor edge until it has been probed for a while: no
// hosts are learned there and no broadcasts are sent there, so that packets never circulate in a
// loop that a new cable has closed.
//
// The package makes decisions and keeps state; the caller sends, receives and runs the timers.
package discovery
