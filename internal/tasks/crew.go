package tasks

import "sync"

// Crew runs functions concurrently, but only a limited number at once.
type Crew struct {
	places chan struct{}
	wg     sync.WaitGroup
}

// NewCrew returns a Crew that runs at most atOnce functions at once.
func NewCrew(atOnce int) *Crew { return &Crew{places: make(chan struct{}, atOnce)} }

// Do waits until fewer than the limit of functions run, and then runs f in a goroutine.
func (c *Crew) Do(f func()) {
	c.places <- struct{}{}
	c.wg.Go(func() {
		defer func() { <-c.places }()
		f()
	})
}

// Wait waits until all functions have returned.
func (c *Crew) Wait() { c.wg.Wait() }

// Each calls f for every item, at most atOnce of them concurrently, and returns when all calls have
// returned.
func Each[T any](items []T, atOnce int, f func(T)) {
	c := NewCrew(atOnce)
	for _, item := range items {
		c.Do(func() { f(item) })
	}
	c.Wait()
}
