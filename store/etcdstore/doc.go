// Package etcdstore is the store.Store of an etcd cluster that somebody else runs, for
// installations whose state must outlive the controller's machine. It is a client only.
package etcdstore
