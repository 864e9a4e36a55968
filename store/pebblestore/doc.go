// Package pebblestore is the store.Store that survives restarts without a server: a Pebble
// database in the data folder of the controller.
//
// All entries are in memory as well. Reads never wait for the disk, and go on while it is
// full, read-only or hangs; when a database fails it is opened again, or written anew from
// what is in memory.
//
// Each entry has a checksum, and beside the entries the database has their number and the
// sum of their checksums. A file beside the database, the head, has the revision that was
// last acknowledged. So a store that lacks something, whatever it is, is refused at the
// next start, with a sentence that says what helps. See Check.
package pebblestore
