// Package registry knows the devices of a mobility network: which MAC addresses belong to each,
// which address each has been given and until when, and where it is attached. It keeps the one
// promise on which everything else rests: an address belongs to one device at a time, whoever
// asks, in whatever order, and also after the controller was killed.
//
// A device is a list of MAC addresses with one IPv4 address. It belongs to a class, which says how
// it is moved and what may move it, and to a pool, from which its address comes. A visitor is a
// device of another domain; it brings its address along and never takes one of a pool.
//
// Operators declare classes, pools and devices, in collections of the service kit. Learned
// devices, visitors, leases and declined addresses result from traffic; the Lessor makes leases.
// All of these are in one book in memory, changed under one lock, and written to a store.Store
// before they are visible. A change is at most one write; a change that could not be written did
// not happen. A lease is reserved before it is written, so that work that depends on it need not
// wait for the store.
//
// Start reading at Registry in registry.go and Lessor in leases.go.
package registry
