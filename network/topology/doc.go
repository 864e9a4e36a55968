// Package topology holds the plain data that describes a network to services
// and to the pure-logic packages below package network: places, links, hosts
// and paths. It knows no sockets and no rules.
package topology
