// Package gnrs is the name service: a [Server] that says by UDP where names are, from a [Store] of
// records, and a [Client] that asks it, and tells it where its own name is.
//
// Messages are those of the original release (package gnrswire); whoever knows nothing but these can
// look names up. Writes have to be records (package record), which the owner of the name has signed:
// what is not signed, is signed by somebody else, is over, or is older than what is there, is refused
// with a [Code]. A write is answered when the store has it for good.
//
// Who sends much is bounded by its address ([Limits]), and writes in all. An answer goes to the address
// from which it was asked for, never to another, and a short question has a short one: somebody else's
// address is of little use to who would flood it.
//
// A [Cache] keeps answers, and is told when they do not hold any more.
package gnrs
