// Package tasks owns goroutines, and has them wait: those of something that has a Run,
// which share a context and which Run waits for at its end (Group), and those of one
// piece of work, of which only some run at once (Crew).
package tasks
