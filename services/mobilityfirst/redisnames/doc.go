// Package redisnames stores the records of names (package record) in a Redis Cluster, the newest of
// each name. It is for more names than one machine has room for, and for several servers that
// answer for the same names.
//
// A [Store] behaves like that of package namestore, except for the effects of a network and of
// remote memory. Of two records of a name the one with the higher number stays, which a script in
// Redis decides. A write has succeeded when the name's master has acknowledged it; with appendfsync
// always the record is on the master's disk then. If the store is told to wait for replicas (WAIT),
// they have the record in memory as well. Redis acknowledges writes before it replicates them, and
// may promote a replica that lacks some of them: without waiting, a failover loses the writes that
// were not replicated yet; if the store waits for all replicas of a master, no acknowledged write
// is lost.
//
// The store does not trust Redis: a value that is not a record of the name, signed by its owner, is
// an error. Records that have been verified once are not verified again as long as there is room to
// remember them.
//
// Requests to each master are queued separately and sent together. While a master does not answer,
// requests for its names are refused immediately with record.ErrBusy, and those for other masters'
// names are not affected.
//
// Servers that share a cluster notify each other of changes over publish and subscribe
// ([Store.Changed]).
//
// Start reading at [Open].
package redisnames
