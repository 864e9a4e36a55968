// Package demo contains the demonstrations that show a newcomer within minutes what Sluice does.
// The first builds a client and a server at the two ends of a long, lossy link, downloads a file
// with curl from a real web server, directly and then carried by two agents, and prints how long
// each download took and which addresses both ends saw. Others show handover, Cinema and names.
// Start reading at Run.
package demo
