// Package commands has what the commands of sluice are built from: [App], which all of them
// share; requests to the controller's API, and how answers are printed ([Get], [Table],
// [Fields]); the commands for what is declared ([Declared]) and for agents ([Agents]); and
// daemons, which read a configuration and run until they are told to end ([Daemon],
// [AgentDaemon]).
//
// Start reading at Service in service.go.
package commands
