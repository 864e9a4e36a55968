package network

import "time"

// basePatience is how long the others wait for a switch.
const basePatience = 2 * time.Second

// patience is how long changes of several switches are waited for, all together.
type patience <-chan time.Time

func newPatience() patience { return time.After(basePatience) }

// await waits until a change is done, as long as there is patience, and says whether it is.
func (p *patience) await(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-*p:
		*p = expired
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// expired is patience that is over.
var expired = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()
