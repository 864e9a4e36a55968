package soak

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/qos/classes"
	"github.com/sluice-net/sluice/services/sos"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// check is a condition that must hold at the end.
type check struct {
	name  string
	holds bool
	found string
}

// verify checks the network after the loads have ended.
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

// noSessions waits until every session has ended. If a session does not end, the error includes its
// state as the controller and both agents report it.
func (f *fleet) noSessions(ctx context.Context) error {
	var live []sos.Record
	err := testbed.Poll(ctx, "the sessions' end", func() error {
		all, err := f.Sessions(ctx)
		if err != nil {
			return err
		}
		live = slices.DeleteFunc(all, func(s sos.Record) bool { return s.State == sos.StateEnded })
		if len(live) > 0 {
			return fmt.Errorf("%d sessions have not ended", len(live))
		}
		return nil
	})
	if err == nil || len(live) == 0 {
		return err
	}
	err = fmt.Errorf("%w; one of them: %+v", err, live[0])
	id, ierr := agentapi.ParseSessionID(live[0].ID)
	if ierr != nil {
		return errors.Join(err, ierr)
	}
	for _, host := range []string{"x", "y"} {
		agent, aerr := f.AgentClient(host)
		if aerr != nil {
			return errors.Join(err, aerr)
		}
		defer agent.Close()
		asking, cancel := context.WithTimeout(ctx, statusWithin)
		status, aerr := agent.Session(asking, id)
		cancel()
		if aerr != nil {
			err = fmt.Errorf("%w; agent %s: %w", err, host, aerr)
			continue
		}
		err = fmt.Errorf("%w; agent %s: phase %s, %+v", err, host, status.Phase, status.Counters)
	}
	return err
}

// statusWithin bounds the time to ask an agent for a session.
const statusWithin = 5 * time.Second

func (f *fleet) classActive(ctx context.Context) error {
	return testbed.Poll(ctx, "the class", func() error {
		var s classes.Stats
		if err := f.Get(ctx, classesPath+"/"+className+"/stats", &s); err != nil {
			return err
		}
		if s.State != classes.StateActive {
			return fmt.Errorf("it is %s: %s", s.State, s.Reason)
		}
		return nil
	})
}
