// Package discovery finds the links between switches.
//
// Each port in turn sends an LLDP frame, a probe; the switch port where it comes
// out tells where the link leads. One probe proves one direction: a link is two
// directed links, each with its own latency and its own death.
//
// A probe carries a keyed hash (HMAC-SHA256, truncated to 16 bytes) over the
// sending port, a sequence number and the time it was sent. The key is random and
// never leaves the controller, so a host cannot make a probe; a sequence number
// counts once and only for a short time, so a host cannot use one it has heard. A
// probe that comes later than that is late, which is no fault of anybody's.
// A host that carries probes between two ports in both directions while they are
// fresh is, to the network, a cable; [Options].Guard refuses even that on
// ports where hosts have been seen.
//
// A port that has just come up is neither link nor edge until it has been probed
// for a while: hosts are not learned there and broadcasts are not sent there, so
// that a loop closed by a new cable never carries a packet around.
//
// The package decides and remembers; sending, receiving and timers are the
// caller's.
package discovery
