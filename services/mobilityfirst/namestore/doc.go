// Package namestore stores the records of names (package record) on disk, the newest of each name,
// in a log-structured store.
//
// [Store.Write] returns when the record is on the disk: after a crash or a power cut every
// acknowledged write is still there. Many writers share one write to the disk. The store refuses a
// record that is older than the stored one. It keeps an expired record as long as an older one
// could still be valid, and then removes it.
//
// Start reading at [Open].
package namestore
