package tasks

import (
	"context"
	"sync"
)

// Group is a set of goroutines. Its methods may be called concurrently.
type Group struct {
	ctx    context.Context
	cancel context.CancelFunc
	mu     sync.Mutex // prevents that Start adds a goroutine while Stop waits
	wg     sync.WaitGroup
}

// New returns a group without goroutines.
func New() *Group {
	g := &Group{}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// Context returns a context that ends when the group is cancelled or stopped.
func (g *Group) Context() context.Context { return g.ctx }

// Cancel ends the context and does not wait.
func (g *Group) Cancel() { g.cancel() }

// Start runs f in a goroutine for which Stop waits. If the context has ended, Start runs nothing
// and returns false.
func (g *Group) Start(f func(context.Context)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() != nil {
		return false
	}
	g.wg.Go(func() { f(g.ctx) })
	return true
}

// Drain waits until all goroutines have returned, and then ends the context. It is for groups whose
// goroutines return by themselves, and to which no goroutine is added any more.
func (g *Group) Drain() {
	g.wg.Wait()
	g.Stop()
}

// Stop ends the context and waits for every goroutine.
func (g *Group) Stop() {
	g.mu.Lock()
	g.cancel()
	g.mu.Unlock()
	g.wg.Wait()
}
