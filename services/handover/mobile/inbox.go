package mobile

import "context"

// inboxSize bounds the functions that wait for the loop.
const inboxSize = 64

// inbox holds the functions that other goroutines send to the loop.
type inbox struct {
	functions chan func()
	closed    <-chan struct{} // closed when the loop has ended
}

// post sends f to the loop, and reports whether it did. It returns false if ctx or the loop has ended.
func (b *inbox) post(ctx context.Context, f func()) bool {
	select {
	case b.functions <- f:
		return true
	case <-ctx.Done():
		return false
	case <-b.closed:
		return false
	}
}

// call sends f to the loop and waits until it has run. It reports whether f has run.
func (b *inbox) call(ctx context.Context, f func()) bool {
	done := make(chan struct{})
	if !b.post(ctx, func() { defer close(done); f() }) {
		return false
	}
	select {
	case <-done:
		return true
	case <-ctx.Done():
	case <-b.closed:
	}
	return false
}
