package plugin

import (
	"context"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/sos/agentapi"
)

// leftover is a session that cannot be taken over. Until it is cleared away its connection
// is known: the rules by which an end is reset would catch a new connection's packets, so
// its client has to wait for their removal.
type leftover struct {
	*recovery
	f  *found
	ss *session
}

// leave gives a session up.
func (x *recovery) leave(id agentapi.SessionID, f *found) *leftover {
	about := sessionContext{Started: time.Now()}
	for _, s := range f.seen {
		if c, ok := readContext(s.Context); ok {
			about = c
		}
	}
	ss := newSession(id, about)
	ss.how = "after a restart of the controller its agents did not both know it"
	ss.enter(StateResetting)
	for role, s := range f.seen {
		ss.last[role] = s.Counters
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.taken.Dropped++
	x.history.expect(id)
	if x.sessions.byFlow[ss.flow] == nil && ss.flow.client.IsValid() {
		x.sessions.byFlow[ss.flow] = ss
	}
	return &leftover{x, f, ss}
}

// clear ends what is left of the session: the agents that know it reset their ends, the
// controller those of which nobody tells.
func (x *leftover) clear(ctx context.Context) {
	defer x.cleared()
	ss := x.ss
	for _, r := range bothRole {
		if a := x.f.at[r]; a != nil {
			x.abort(ss.id, a)
		}
	}
	x.mu.Lock()
	mine := x.sessions.byFlow[ss.flow] == ss
	x.mu.Unlock()
	if !mine || !x.f.half() {
		// Its client is with other agents, or it never came to these.
		return
	}
	for _, r := range bothRole {
		path := ss.Layout.side(r).Path
		if _, told := x.f.seen[r]; told || len(path) == 0 {
			continue
		}
		for deadline := time.Now().Add(x.opts.Settle); !x.net.Topology().Has(path[0].Switch) && time.Now().Before(deadline); {
			if tasks.Sleep(ctx, settleEvery) != nil {
				return
			}
		}
		x.resets.end(ctx, ss, r)
		x.endings.removeSide(ctx, ss, r)
	}
}

// cleared forgets the session. If it ever was one, it is in the history then.
func (x *leftover) cleared() {
	x.mu.Lock()
	defer x.mu.Unlock()
	close(x.ss.over)
	if x.sessions.byFlow[x.ss.flow] == x.ss {
		delete(x.sessions.byFlow, x.ss.flow)
	}
	if x.f.half() {
		x.ss.enter(StateEnded)
		x.history.carried(x.ss.record())
	}
}
