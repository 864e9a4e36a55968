package tasks

import "sync"

// Crew runs functions side by side, no more than some at once.
type Crew struct {
	places chan struct{}
	wg     sync.WaitGroup
}

// NewCrew returns one that runs so many functions at once.
func NewCrew(atOnce int) *Crew { return &Crew{places: make(chan struct{}, atOnce)} }

// Do runs f in a goroutine that Wait waits for. It returns when there is a place for it.
func (c *Crew) Do(f func()) {
	c.places <- struct{}{}
	c.wg.Go(func() {
		defer func() { <-c.places }()
		f()
	})
}

// Wait returns when all functions have.
func (c *Crew) Wait() { c.wg.Wait() }

// Each calls f for every item, for so many at once, and returns when all calls have.
func Each[T any](items []T, atOnce int, f func(T)) {
	c := NewCrew(atOnce)
	for _, item := range items {
		c.Do(func() { f(item) })
	}
	c.Wait()
}
