// Package gnrs is the name service: a [Server] that says by UDP where names are, from a store of
// records (package namestore), and a [Client] that asks it, and tells it where its own name is.
//
// Messages are those of the original release (package gnrswire); whoever knows nothing but these can
// look names up. Writes have to be records (package record), which the owner of the name has signed:
// what is not signed, is signed by somebody else, is over, or is older than what is there, is refused
// with a [Code]. A write is answered when the disk has it.
//
// Who sends much, or nonsense, is bounded by its address ([Limits]), and so is all of it together. An
// answer goes to the address from which it was asked for, never to another, and has a few hundred bytes
// at most: somebody else's address is of little use to who would flood it.
package gnrs
