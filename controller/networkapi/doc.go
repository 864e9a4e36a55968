// Package networkapi is the network's part of the REST interface: switches,
// ports, links, hosts, paths, rules by owner, the trace of a described packet, and
// what is wrong with it. What changes the network is for services.
package networkapi
