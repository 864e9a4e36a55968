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

// Errors are what several agents said to one thing, in their order; nil where it went well.
type Errors []error

// Together asks agents for the same at once, each by ask, and returns when all have
// answered or the time is up.
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

// Err joins them, or is nil.
func (e Errors) Err() error { return errors.Join(e...) }

// MayPass says which agents cannot take anything now but are well, or do not answer at all:
// in both cases others may help.
func (e Errors) MayPass() (indices []int) {
	for i, err := range e {
		if err != nil && slices.Contains([]control.Code{"", control.CodeFull, control.CodeDraining, control.CodeInternal}, control.CodeOf(err)) {
			indices = append(indices, i)
		}
	}
	return indices
}
