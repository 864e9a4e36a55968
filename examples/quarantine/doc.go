// Command quarantine is Sluice with a sixth service: what a host in quarantine sends goes to
// an inspector, an agent on another machine, and nowhere else. Its plugin is in service.go,
// its agent and commands are in main.go. docs/how-to/write-a-service.md explains it.
package main
