// Package ovsdb configures Open vSwitch by its database (RFC 7047): the part of a
// switch that OpenFlow cannot change, its queues and its sFlow sampling.
//
// A Client keeps a connection to one database and a State, an immutable picture of
// what is configured there. Apply says which queues a bridge shall have: what
// differs is changed in one transaction, and Apply returns when the switch's daemon
// has carried it out. All rows bear the owner's name in external_ids, so that a
// controller that was restarted finds them again, and so that rows of others are
// never touched but by SetTag.
//
// The columns are those of ovs-vswitchd.conf.db(5).
package ovsdb
