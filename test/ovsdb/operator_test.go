package ovsdb

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/ovsdb"
)

// What an operator hangs on a discipline of ours stays there, whatever is changed beside
// it; and where it stands in the way of a queue of ours, that is told at once.
func TestOperatorsQueuesStay(t *testing.T) {
	t.Parallel()
	ctx, s, c := connected(t)
	if _, err := c.Apply(ctx, "test", s.DPID(), ovsdb.Wanted{Queues: map[uint32]ovsdb.Root{1: root(10_000_000, 0, 1)}}); err != nil {
		t.Fatal(err)
	}
	state, _ := c.State()
	b, _ := state.Bridge(s.DPID())
	p, _ := b.Port(1)
	id := rowOf(ctx, t, s, p)
	if _, err := s.Vsctl(ctx, "--id=@q", "create", "Queue", "other-config:max-rate=123456", "--", "add", "QoS", id, "queues", "7=@q"); err != nil {
		t.Fatal(err)
	}
	has := func(when string) {
		t.Helper()
		queues, err := s.Vsctl(ctx, "get", "QoS", id, "queues")
		if err != nil || !strings.Contains(queues, "7=") {
			t.Errorf("%s, the operator's queue 7 is not among %s: %v", when, strings.TrimSpace(queues), err)
		}
		if rows := dump(t, s); !strings.Contains(rows, "123456") {
			t.Errorf("%s, the operator's queue has been changed:\n%s", when, rows)
		}
	}
	if _, err := c.Apply(ctx, "test", s.DPID(), ovsdb.Wanted{Queues: map[uint32]ovsdb.Root{1: root(10_000_000, 0, 2)}}); err != nil {
		t.Error(err)
	}
	has("after a change of ours")
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	done, err := c.Apply(short, "test", s.DPID(), ovsdb.Wanted{Queues: map[uint32]ovsdb.Root{1: root(10_000_000, 0, 7)}})
	if !errors.Is(err, ovsdb.ErrForeign) || done.Operations > 10 {
		t.Errorf("a queue of ours with the operator's number: %+v, %v", done, err)
	}
	has("in our way")
}
