// Package namestore keeps the records of names (package record) on disk: the newest of each, in a
// log-structured store.
//
// [Store.Write] returns nothing before the disk has what it wrote: after a crash or a power cut each
// write is there whose success was told. Many writers share one write to the disk. What is older than
// what is there is refused, whoever sends it; a record that is over is kept for as long as one from
// before it could still hold, and is then forgotten.
//
// Start with [Open].
package namestore
