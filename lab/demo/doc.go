// Package demo is the newcomer's first five minutes: it builds a client and a
// server on two sides of a long, lossy link, downloads a file with curl from a
// real web server, first directly and then carried by two agents, and prints
// what each way took and what both ends believed they were talking to.
package demo
