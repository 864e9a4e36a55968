package soak

import (
	"context"
	"fmt"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/qos/latency"
	sos "github.com/sluice-net/sluice/sos/plugin"
)

// check is one thing that must hold at the end.
type check struct {
	name  string
	holds bool
	found string
}

// verify looks at the network when the loads have ended.
func (f *fleet) verify(ctx context.Context) (all []check) {
	note := func(name, good string, err error) {
		c := check{name: name, holds: err == nil, found: good}
		if err != nil {
			c.found = err.Error()
		}
		all = append(all, c)
	}
	note("no session is left", "none", f.noSessions(ctx))
	note("the class is active", "it is", f.classActive(ctx))
	n, err := f.sameRules(ctx)
	note("the switches' rules are those of the ledger", fmt.Sprintf("%d rules", n), err)
	return all
}

// noSessions waits until every session has ended.
func (f *fleet) noSessions(ctx context.Context) error {
	return testbed.Poll(ctx, "the sessions' end", func() error {
		all, err := f.Sessions(ctx)
		if err != nil {
			return err
		}
		live, example := 0, ""
		for _, s := range all {
			if s.State != sos.StateEnded {
				live++
				example = fmt.Sprintf("%v to %v is %s", s.Client, s.Server, s.State)
			}
		}
		if live > 0 {
			return fmt.Errorf("%d sessions have not ended: %s", live, example)
		}
		return nil
	})
}

func (f *fleet) classActive(ctx context.Context) error {
	return testbed.Poll(ctx, "the class", func() error {
		var s latency.Stats
		if err := f.Get(ctx, classesPath+"/"+className+"/stats", &s); err != nil {
			return err
		}
		if s.State != latency.StateActive {
			return fmt.Errorf("it is %s: %s", s.State, s.Reason)
		}
		return nil
	})
}
