package mobile

import "context"

// inboxSize bounds what waits for the loop.
const inboxSize = 64

// inbox holds what the others have the loop run.
type inbox struct {
	functions chan func()
	over      <-chan struct{} // closed when the loop ends
}

// post has the loop run f.
func (b *inbox) post(ctx context.Context, f func()) bool {
	select {
	case b.functions <- f:
		return true
	case <-ctx.Done():
		return false
	case <-b.over:
		return false
	}
}

// ask has the loop run f and waits until it has.
func (b *inbox) ask(ctx context.Context, f func()) bool {
	done := make(chan struct{})
	if !b.post(ctx, func() { defer close(done); f() }) {
		return false
	}
	select {
	case <-done:
		return true
	case <-ctx.Done():
	case <-b.over:
	}
	return false
}
