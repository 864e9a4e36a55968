package sos

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// leftover is a session that cannot be taken over. Until it is cleared away its connection
// stays registered: the rules that reset an end would also match the packets of a new
// connection, so its client has to wait for their removal.
type leftover struct {
	*recovery
	reported *foundSession
	ss       *session
}

// abandon gives up a session that cannot be taken over.
func (x *recovery) abandon(id agentapi.SessionID, f *foundSession) *leftover {
	about := sessionContext{Started: time.Now()}
	for _, s := range f.reports {
		if c, ok := readContext(s.Context); ok {
			about = c
		}
	}
	ss := newSession(id, about)
	ss.how = "after a restart of the controller its agents did not both know it"
	ss.enter(StateResetting)
	for role, s := range f.reports {
		ss.last[role] = s.Counters
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.takeoverResult.Dropped++
	x.history.forgetOrphan(id)
	if x.sessions.byFlow[ss.flow] == nil && ss.flow.client.IsValid() {
		x.sessions.byFlow[ss.flow] = ss
	}
	return &leftover{x, f, ss}
}

// clear ends what is left of the session: the agents that know it reset their ends, and the
// controller resets the ends whose agents do not report it.
func (x *leftover) clear(ctx context.Context) {
	defer x.cleared()
	ss := x.ss
	for _, r := range roles {
		if a := x.reported.agents[r]; a != nil {
			x.abort(ss.id, a)
		}
	}
	x.mu.Lock()
	mine := x.sessions.byFlow[ss.flow] == ss
	x.mu.Unlock()
	if !mine || !x.reported.isHalf() {
		// The client has other agents by now, or never reached these.
		return
	}
	for _, r := range roles {
		path := ss.Layout.side(r).Path
		if _, ok := x.reported.reports[r]; ok || len(path) == 0 {
			continue
		}
		for deadline := time.Now().Add(x.opts.Settle); !x.net.Topology().Has(path[0].Switch) && time.Now().Before(deadline); {
			if tasks.Sleep(ctx, settleEvery) != nil {
				return
			}
		}
		x.resets.notify(ctx, ss, r)
		x.endings.removeSide(ctx, ss, r)
	}
}

// cleared removes the session and, if it was ever established, moves it to the history.
func (x *leftover) cleared() {
	x.mu.Lock()
	defer x.mu.Unlock()
	close(x.ss.over)
	if x.sessions.byFlow[x.ss.flow] == x.ss {
		delete(x.sessions.byFlow, x.ss.flow)
	}
	if x.reported.isHalf() {
		x.ss.enter(StateEnded)
		x.history.carried(x.ss.record())
	}
}
