// Package etcdstore is a store.Store in an external etcd cluster, for installations whose state
// must survive the loss of the controller's machine. It is a client only.
package etcdstore
