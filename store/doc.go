// Package store is the small interface behind which all of Sluice's durable
// state lives: whitelists, agents, leases, names, channels, classes and the
// numbers that must not go back after a restart.
//
// Three implementations stand beside it: pebblestore (a database in the
// controller's data folder, the default), etcdstore (a client of an etcd
// cluster) and memstore (for tests and for a controller that is told to keep
// nothing). The package storetest holds the one conformance test that all
// pass.
//
// Keys are paths without a leading slash, owned by whoever is named first:
// "sos/whitelist/<id>". Values are JSON by convention; the helpers GetJSON,
// PutJSON and ListJSON keep that convention in one place.
package store
