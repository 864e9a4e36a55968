// Package ovsdb configures Open vSwitch by its database (RFC 7047): the part of a
// switch that OpenFlow cannot change, its queues and its sFlow sampling.
//
// A Manager keeps one connection to the database of each connected switch, and what its
// Owners want there: each declares, by a function of what the database holds, which queues
// and which sFlow reports a bridge shall have, and that is so again after whatever has
// happened to the database, the switch or the controller. All rows bear their owner's name
// in external_ids, so that a controller that was restarted finds them again. What bears
// another name, or none, is never touched: not a queue either that an operator has hung on a
// discipline of ours.
//
// Below it, a Client is the connection to one database, with a State, an immutable picture
// of what is configured there. Apply changes what differs from what is wanted in one
// transaction, and returns when the switch's daemon has carried it out. SetTag alone writes
// on rows of others.
//
// The columns are those of ovs-vswitchd.conf.db(5).
package ovsdb
