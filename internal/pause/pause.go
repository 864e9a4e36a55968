// Package pause lets time pass in tests that are about time itself: for as long as something
// is measured, or done to the network, or for as long as what must not happen would have
// taken. Whoever waits for something that is to happen polls with a deadline, or waits on a
// channel; internal/check refuses all other ways to do nothing for a while.
package pause

import "time"

// For returns after a time. why says what the time is for, for who reads the test.
func For(d time.Duration, why string) {
	if why == "" {
		panic("pause: without a reason")
	}
	time.Sleep(d)
}
