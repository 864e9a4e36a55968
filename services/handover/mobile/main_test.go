package mobile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile"
	"github.com/sluice-net/sluice/services/handover/mobile/policy"
)

var vniMAC = openflow.MAC{6, 0, 0, 0, 0, 1}

// childConfig makes the test's program run as a daemon; it holds the configuration, as JSON.
const childConfig = "SLUICE_TEST_MOBILE"

// child is the configuration of a test's daemon.
type child struct {
	StateDir, Socket, Resolver string
	Interfaces                 []mobile.Interface
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childConfig); text != "" {
		if err := runChild(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func runChild(text string) error {
	var c child
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	go func() { // a daemon whose test was killed must not stay
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	err := mobile.Run(ctx, mobile.Config{
		Device: "phone", StateDir: c.StateDir, Socket: c.Socket, SocketGroup: -1, VNI: "vni", VNIMAC: vniMAC,
		Interfaces: c.Interfaces, Overlap: 200 * time.Millisecond,
		Policy: policy.Rules{Criteria: []policy.Criterion{policy.Order}, Dwell: 200 * time.Millisecond},
		Probe:  mobile.Probe{Interval: 100 * time.Millisecond, Window: 10}, Metric: 50, Resolver: c.Resolver,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
