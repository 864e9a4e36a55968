// Package registry holds the devices of a mobility network: which MAC addresses belong to each,
// which address each has been given and until when, and where it is attached. It guarantees that an
// address belongs to one device at a time, whoever asks, in whatever order, and also after the
// controller was killed. Everything else depends on this guarantee.
//
// A device is a list of MAC addresses with one IPv4 address. It belongs to a class, which says how
// it is moved and what may move it, and to a pool, from which its address comes. A visitor is a
// device of another domain; it brings its address along and never takes one of a pool.
//
// Operators declare classes, pools and devices, in collections of the service kit. Learned
// devices, visitors, leases and declined addresses result from traffic; the Lessor makes leases.
// The type book holds all of these in memory, under one lock. A change is written to a store.Store
// before it becomes visible. It is at most one write, and takes no effect if that write fails. A lease
// is reserved before it is written, so that work that depends on it need not wait for the store.
//
// Start reading at Registry in registry.go and Lessor in leases.go.
package registry
