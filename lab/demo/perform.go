package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sluice-net/sluice/lab"
)

// perform calls show, which runs a demo with a temporary folder, and then down, even after an error
// and when ctx has ended.
func perform(ctx context.Context, dir *string, show, down func(context.Context) error) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("the demo builds network namespaces and needs root: try sudo")
	}
	if *dir, err = os.MkdirTemp("", "sluice-demo-"); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	failure := show(ctx)
	if failure != nil && ctx.Err() != nil {
		failure = ErrStopped // The errors that follow from the stop are of no interest.
	}
	return errors.Join(failure, down(ctx), os.RemoveAll(*dir))
}

// takeDown takes a network down, if there is one, even after ctx has ended.
func takeDown(ctx context.Context, l *lab.Lab) error {
	if l == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return l.Down(ctx)
}
