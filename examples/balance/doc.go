// Command balance is Sluice with an additional service, which has virtual addresses in front of
// servers. A connection to such an address goes to the server with the fewest connections: switches
// rewrite the connection's addresses in both directions. An agent beside each server reports
// whether the server answers. The plugin is in service.go, its treatment of a connection in
// connections.go, and the agent and the commands in main.go.
package main
