package agents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/kit/control"
)

// Errors holds the results of one request to several agents, in the agents' order. The element of
// an agent that succeeded is nil.
type Errors []error

// Together calls ask for several agents at once, and returns when all calls have returned. Their
// context ends after timeout.
func Together[C any](ctx context.Context, timeout time.Duration, agents []*Agent[C], ask func(context.Context, int, *Agent[C]) error) Errors {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	errs := make(Errors, len(agents))
	var all sync.WaitGroup
	for i, a := range agents {
		all.Go(func() {
			if err := ask(ctx, i, a); err != nil {
				errs[i] = fmt.Errorf("agent %s: %w", a.Name, err)
			}
		})
	}
	all.Wait()
	return errs
}

// Err returns all errors joined, or nil.
func (e Errors) Err() error { return errors.Join(e...) }

// MayPass returns the indices of agents that failed in a way in which other agents may succeed:
// they are well but take nothing now, or they do not answer at all.
func (e Errors) MayPass() (indices []int) {
	for i, err := range e {
		if err != nil && slices.Contains([]control.Code{"", control.CodeFull, control.CodeDraining, control.CodeInternal}, control.CodeOf(err)) {
			indices = append(indices, i)
		}
	}
	return indices
}
