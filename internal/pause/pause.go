// Package pause lets time pass in tests that are about time itself: while something is measured,
// while something is done to the network, or until something that must not happen would have
// happened. A test that waits for something to happen must poll with a deadline or wait on a
// channel instead. internal/check refuses all other ways to let time pass.
package pause

import "time"

// For returns after a time. why tells the reader of the test what the time is for.
func For(d time.Duration, why string) {
	if why == "" {
		panic("pause: without a reason")
	}
	time.Sleep(d)
}
