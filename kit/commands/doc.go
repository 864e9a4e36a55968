// Package commands holds the building blocks of sluice's commands: [App], which all commands share;
// requests to the controller's API and the output of answers ([Get], [Table], [Fields]); the
// commands for declared items ([Declared]) and for agents ([Agents]); and daemons, which read a
// configuration and run until they are told to end ([Daemon], [AgentDaemon]).
//
// Start reading at Service in service.go.
package commands
