// Package pebblestore is a store.Store that survives restarts without a server: a Pebble
// database in the controller's data folder. Start reading with store.go and writer.go.
//
// All entries are in memory as well. Reads never wait for the disk, and work while the disk is
// full, read-only or does not respond. A database that fails is opened again, or rewritten from
// memory.
//
// Each entry has a checksum, and the database also contains the number of entries and the sum of
// their checksums. A file beside the database, the head, contains the revision that was last
// acknowledged. A store that lacks anything is therefore refused at the next start, with an
// error that says what helps. See Check.
package pebblestore
