package interop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/services/qos/critical"
	"github.com/sluice-net/sluice/services/qos/match"
)

// open is the priority of the rules that hold when nobody renews the others.
var open = fmt.Sprintf("priority=%d,", network.StageRoute.Base()+rule.RouteOpen)

// TestFailsOpen kills the controller: connections that it would be asked about, because
// agents are to carry them or they are critical, go the ordinary way once what it has leased
// to the switches ends. When it is back, they are carried again.
func TestFailsOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "pairopen")
	w.whitelist()
	w.isCarried("a carried connection")
	w.post("/api/v1/qos/critical", critical.Spec{Name: "ssh", Rate: 1_000_000, Match: match.Flow{TCPDst: "22"}}, nil)
	w.must(testbed.Poll(t.Context(), "the switches to be told what holds without a controller", func() error {
		for _, sw := range []string{"s1", "s2"} {
			rules, err := w.lab.Switch(sw).Ofctl(t.Context(), "dump-flows")
			if err != nil || !strings.Contains(rules, open) {
				return fmt.Errorf("%s has no rule with %s: %w", sw, open, err)
			}
		}
		return nil
	}))
	w.Controller().Kill()
	// What is leased ends one after the other, as it was renewed.
	for _, c := range []struct {
		what string
		port uint16
		want error
	}{
		{"of the whitelist", webPort, nil},
		{"that is critical", 22, syscall.ECONNREFUSED}, // nobody listens; that the host says so is enough
		{"of neither kind", 7, syscall.ECONNREFUSED},
	} {
		w.must(testbed.PollFor(t.Context(), time.Minute, "a connection "+c.what+" without a controller", func() error {
			if err := w.connect(t.Context(), "client", "server", c.port); !errors.Is(err, c.want) {
				return fmt.Errorf("port %d: %v, want %v", c.port, err, c.want)
			}
			return nil
		}))
	}
	w.must(w.StartController(context.WithoutCancel(t.Context())))
	w.must(w.Ready(t.Context()))
	w.isCarried("a carried connection after the restart")
}

// connect opens a connection and closes it.
func (w *world) connect(ctx context.Context, from, to string, port uint16) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return w.lab.Host(from).Do(func() error {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(w.addr(to), port).String())
		if err != nil {
			return err
		}
		return c.Close()
	})
}
