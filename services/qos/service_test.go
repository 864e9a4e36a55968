package qos

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/kit/servicetest"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/qos/guard"
	"github.com/sluice-net/sluice/services/qos/reserve"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// idle is a part that waits for its end.
type idle struct{}

func (idle) Loaded() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func (idle) Register(*api.API)            {}
func (idle) NetworkChanged(network.Event) {}
func (idle) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Run ends with its context, also with one that has ended before.
func TestRunEnds(t *testing.T) {
	for round := range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		if round%2 == 0 {
			cancel()
		}
		ended := make(chan error, 1)
		book := reserve.New(nil)
		held := guard.New(guard.Options{Book: book, Rules: servicetest.NewLedger(), Interval: time.Hour})
		go func() { ended <- New(book, held, idle{}, idle{}).Run(ctx) }()
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("round %d: Run does not end", round)
		}
	}
}
