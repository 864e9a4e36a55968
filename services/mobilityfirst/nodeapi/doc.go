// Package nodeapi defines the control API between MobilityFirst's storage nodes, compute nodes and
// caches and their controller, in addition to that of all agents (package control).
//
// Each second a node sends a [Report] in its events, with its name and its load. The controller
// requests the rest:
//
//	POST /v1/proof    Challenge -> Proof: the node has the key of its name
//	GET  /v1/custody  CustodyPage: what a storage node keeps, by destination and sender
//
// A report only counts for the node's own name, and only after the node has proven that it holds
// the key of that name: whoever holds the key may speak for it.
//
// Start reading at [Report], then [NewServer] for the node's side and [Client] for the
// controller's.
package nodeapi
