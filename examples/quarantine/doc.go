// Command quarantine is Sluice with a sixth service, which sends all IP packets of a host in
// quarantine to an inspector, an agent on another machine, and nowhere else. Its plugin is in
// service.go, its agent and commands are in main.go. docs/how-to/write-a-service.md explains it.
package main
