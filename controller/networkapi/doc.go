// Package networkapi is the network's part of the REST interface: switches,
// ports, links, hosts, paths, rules by owner, and the trace of a described
// packet. All of it reads; what changes the network is for services.
package networkapi
