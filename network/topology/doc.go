// Package topology holds plain data that describes a network to services and to the packages
// below package network: ports, links, hosts and paths, and path search on them. It does no I/O
// and knows no rules. Start reading with topology.go; Find in find.go answers path requests.
package topology
