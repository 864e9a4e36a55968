// Command balance is Sluice with a service of its own: virtual addresses in front of servers. A
// connection to such an address goes to the server with the fewest of them, as switches rewrite its
// addresses in both directions. An agent beside each server tells whether that answers. The plugin is in
// service.go, what it does with a connection in connections.go, and the agent and the commands are in main.go.
package main
