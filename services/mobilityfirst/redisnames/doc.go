// Package redisnames keeps the records of names (package record) in a Redis Cluster: the newest of each,
// for names that are more than one machine has room for, or that several servers answer for.
//
// A [Store] has the behaviour of package namestore's, but for what a network and others' memory make of
// it. Of two records of a name the one with the higher number stays, which a script in Redis decides. A
// write has succeeded when the name's master has said so, which it does, with appendfsync always, when
// its disk has it; and when as many replicas have it in memory as the store was told to wait for
// (WAIT). Redis copies to replicas what it has answered already, and makes a replica a master that may
// lack some of it: without replicas waited for, a failover loses what was not copied yet; with
// all of a master's waited for, nothing that was acknowledged.
//
// What Redis returns is read like what anybody sends: a value that is no record of the name, signed by
// its owner, is an error. What has been verified once is not verified again for as long as there is room
// to remember it.
//
// Each master is asked by itself, many things at a time; while one does not answer, its names are
// refused at once with record.ErrBusy, and the others' are not.
//
// Servers that share a cluster tell each other of changes by its publish and subscribe ([Store.Changed]).
//
// Start with [Open].
package redisnames
