package lab_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/lab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// forwardAsBridge makes switches of a lab learning bridges without a controller.
func forwardAsBridge(t *testing.T, l *lab.Lab, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := l.Switch(name).Ofctl(testContext(t), "add-flow", "actions=NORMAL"); err != nil {
			t.Fatal(err)
		}
	}
}

// output runs a program on a host and returns what it prints.
func output(t *testing.T, h *lab.LiveHost, name string, args ...string) string {
	t.Helper()
	out, err := h.Command(testContext(t), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestWANCarriesIPv4AndIPv6(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.WAN("wan", lab.WANOptions{RTT: 40 * time.Millisecond, Loss: -1}))
	forwardAsBridge(t, l, "s1", "s2")
	client, server := l.Host("client"), l.Host("server")
	for _, addr := range []string{server.Addr().String(), server.Addr6().String()} {
		out := output(t, client, "ping", "-c", "3", "-i", "0.2", "-W", "2", addr)
		t.Log(out)
	}
}
