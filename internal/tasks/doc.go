// Package tasks starts goroutines and waits for them. A Group holds the goroutines of a component
// with a Run method: they share a context, and Run waits for them before it returns. A Crew holds
// the goroutines of one piece of work, of which only a limited number run at once.
package tasks
