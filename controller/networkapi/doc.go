// Package networkapi is the network's part of the REST API: switches, ports, links, hosts, paths,
// rules by owner, the trace of a described packet, and the examination of the network. It changes
// nothing in the network; services do. Start reading at Register in api.go.
package networkapi
