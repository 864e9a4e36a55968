// Package store defines the interface through which all of Sluice's durable state is kept:
// whitelists, agents, leases, names, channels, classes and the numbers that must not decrease after
// a restart. Start reading with store.go.
//
// There are three implementations: pebblestore (a database in the controller's data folder, the
// default), etcdstore (a client of an etcd cluster) and memstore (for tests, and for a
// controller that is configured to keep nothing). Package storetest has the conformance test
// that all of them pass.
//
// Keys are paths without a leading slash. The first element names the owner:
// "sos/whitelist/<id>". Values are JSON by convention; GetJSON, PutJSON and ListJSON implement
// that convention.
package store
