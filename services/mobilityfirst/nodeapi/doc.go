// Package nodeapi is what MobilityFirst's storage nodes, compute nodes and caches and their controller say
// to each other beyond what all agents do (package control).
//
// Each second a node tells a [Report] of itself in its events: which name it is at, and how busy it is. The
// controller asks for the rest:
//
//	POST /v1/proof    Challenge -> Proof: the node has the key of its name
//	GET  /v1/custody  CustodyPage: what a storage node keeps, by destination and sender
//
// What a node tells counts for its name alone, and only after it has proven that the name is its own: whoever
// has the key of a name may speak for it.
//
// Start reading at [Report], then [NewServer] for the node's side and [Client] for the controller's.
package nodeapi
