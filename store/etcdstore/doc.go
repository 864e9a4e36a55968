// Package etcdstore is the store.Store that survives restarts: etcd, either
// embedded in this process with a folder of its own (OpenEmbedded) or a
// cluster that somebody runs (OpenExternal). Both are used through the same
// client, so outgrowing one machine changes a line of configuration.
//
// The embedded etcd listens on no socket at all; requests are function calls.
package etcdstore
