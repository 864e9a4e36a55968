// Package ovsdb configures Open vSwitch through its database (RFC 7047): the parts of a switch
// that OpenFlow cannot change, which are its queues and its sFlow sampling. Start reading with
// Manager and Owner.
//
// A Manager keeps one connection to the database of each connected switch, and the state that
// its Owners declare: each Owner declares, by a function of the database's content, which queues
// and sFlow reports a bridge has. The Manager restores that state whatever happens to the
// database, the switch or the controller. All rows have their owner's name in external_ids, so
// that a restarted controller finds them again. Rows with another name, or without one, are
// never changed. That includes queues that an operator has added to one of our QoS rows.
//
// Below it, a Client is the connection to one database, with a State, an immutable copy of the
// configuration. Apply changes all differences from the desired state in one transaction, and
// returns when the switch's daemon has applied it. Only SetTag writes to rows of others.
//
// The columns are those of ovs-vswitchd.conf.db(5).
package ovsdb
