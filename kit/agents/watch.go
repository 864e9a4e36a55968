package agents

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit/control"
)

const (
	// probes is the number of times that an agent is asked whether it is alive. probeTimeout bounds
	// each request, and probePause is the time between them.
	probes       = 2
	probeTimeout = 300 * time.Millisecond
	probePause   = 50 * time.Millisecond
	// retryAfter is the time after which a silent agent is asked again.
	retryAfter = time.Second
	// stateTimeout bounds the requests to an agent that has just been heard.
	stateTimeout = 5 * time.Second
)

// ErrReplaced is the cause with which an agent's work ends when the agent was started again.
var ErrReplaced = errors.New("agent was started again")

// watch follows one agent's events until ctx ends. It marks the agent silent when it does not
// answer, and up when it is heard again.
func (r *Registry[C, R, L]) watch(ctx context.Context, a *Agent[C]) {
	for ctx.Err() == nil {
		err := r.followEvents(ctx, a)
		if ctx.Err() != nil {
			return
		}
		pause := probePause
		if dead := r.probe(ctx, a); dead != nil {
			r.markSilent(a, err, dead)
			pause = retryAfter
		}
		if tasks.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// followEvents handles the agent's events until the stream ends, and returns the reason.
func (r *Registry[C, R, L]) followEvents(ctx context.Context, a *Agent[C]) error {
	silent, _ := r.Timing()
	silent -= probes * (probeTimeout + probePause) // the probes need their time as well
	return a.Client.Watch(ctx, min(silent, control.Silence), func(e control.Event[R, L]) { r.handleEvent(a, e) })
}

// probe asks an agent whose event stream broke for its state, because a broken stream does not
// prove that the agent is dead. It asks twice, with short deadlines, and returns the last error.
// While it asks for the second time, it also probes the agent's machine, so that Judge need not
// wait for that result later.
func (r *Registry[C, R, L]) probe(ctx context.Context, a *Agent[C]) error {
	var err error
	for n := range probes {
		if n == probes-1 {
			r.tasks.Start(func(ctx context.Context) { knockEarly(ctx, r, a) })
		}
		limited, cancel := context.WithTimeout(ctx, probeTimeout)
		err = r.Ask(limited, a)
		cancel()
		if err == nil || tasks.Sleep(ctx, probePause) != nil {
			break
		}
	}
	return err
}

// Ask asks an agent for its status and keeps the answer.
func (r *Registry[C, R, L]) Ask(ctx context.Context, a *Agent[C]) error {
	st, err := a.Client.Status(ctx)
	if err == nil {
		r.updateStatus(a, st)
	}
	return err
}

// updateStatus records an agent's status.
func (r *Registry[C, R, L]) updateStatus(a *Agent[C], st control.Status) {
	r.mu.Lock()
	changed := a.state.Status.SessionPorts != st.SessionPorts
	st.Load, st.DrainRequests = mergeLoad(&a.state.Status, st.Instance, st.DrainRequests, st.Load)
	a.state.Status = st
	r.mu.Unlock()
	if changed {
		r.Changed()
	}
}

// mergeLoad returns a load that has just arrived, with the draining flag of the message that counts
// more drain requests: messages of an agent can arrive out of order.
func mergeLoad(known *control.Status, instance string, drainRequests uint64, l control.Load) (control.Load, uint64) {
	if known.Instance == instance && drainRequests < known.DrainRequests {
		l.Draining, drainRequests = known.Draining, known.DrainRequests
	}
	return l, drainRequests
}

// handleEvent handles one event. The agent becomes up after its first event has been handled, so
// that callers which find it up also see what the event reported.
func (r *Registry[C, R, L]) handleEvent(a *Agent[C], e control.Event[R, L]) {
	r.mu.Lock()
	replaced := a.instance != "" && a.instance != e.Instance
	returned := a.state.Liveness != Up
	before := a.stored && a.instance == "" // an earlier controller may have handled the records
	first := a.instance != e.Instance
	if first {
		a.instance, a.lastSeq = e.Instance, 0
	}
	a.state.LastSeen = time.Now()
	if returned { // the agent must not be judged dead while its event is handled
		a.refused, a.silentSince = false, a.state.LastSeen
	}
	st := &a.state.Status
	st.Load, st.DrainRequests = mergeLoad(st, e.Instance, e.DrainRequests, e.Status)
	fresh := e.Seq - min(e.Seq, a.lastSeq)
	missed := fresh > uint64(len(e.Ended))
	e.Ended = e.Ended[len(e.Ended)-int(min(fresh, uint64(len(e.Ended)))):]
	a.lastSeq = max(a.lastSeq, e.Seq)
	drifted := a.updateDrift(e.Drift, first, a.state.LastSeen)
	url := a.state.URL
	r.mu.Unlock()
	r.Event(a, e, before)
	if drifted != nil {
		r.Publish("agent.drifted", drifted)
	}
	if returned {
		r.mu.Lock()
		a.state.Liveness, a.state.Error, a.upSince = Up, "", a.state.LastSeen
		r.mu.Unlock()
		r.Publish("agent.up", map[string]any{"agent": a.Name})
		r.Log.Info("agent is up", "agent", a.Name, "url", url)
		r.tasks.Start(func(ctx context.Context) { r.completeState(ctx, a) })
		r.Changed()
	}
	if replaced {
		r.Lost(a, nil, ErrReplaced)
	} else if missed {
		r.tasks.Start(func(ctx context.Context) { r.Missed(ctx, a) })
	}
}

// completeState reads the status of an agent that has just been heard, and finds its place.
func (r *Registry[C, R, L]) completeState(ctx context.Context, a *Agent[C]) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	st, err := a.Client.Status(ctx)
	if draining := a.State().Draining; err == nil && st.Draining != draining {
		// The agent was drained for a controller that has lost this setting, or it could not be
		// reached when it was to be drained.
		st, err = a.Client.Drain(ctx, draining)
	}
	if err == nil {
		r.updateStatus(a, st)
	}
	r.Heard(ctx, a)
	r.find(ctx, a)
}

// markSilent marks an agent as silent whose event stream ended with cause, and which failed to
// answer with the error answer. Judge decides about its sessions.
func (r *Registry[C, R, L]) markSilent(a *Agent[C], cause, answer error) {
	r.mu.Lock()
	was := a.state.Liveness
	a.state.Liveness = Silent
	a.refused = errors.Is(answer, syscall.ECONNREFUSED)
	if cause != nil {
		a.state.Error = cause.Error()
	}
	if was != Silent {
		a.silentSince = time.Now()
	}
	url, text := a.state.URL, a.state.Error
	r.mu.Unlock()
	if was == Silent {
		return
	}
	r.Log.Warn("agent is silent", "agent", a.Name, "url", url, "error", cause)
	r.Publish("agent.silent", map[string]any{"agent": a.Name, "error": text})
	r.tasks.Start(func(ctx context.Context) { r.judgeWhileSilent(ctx, a) })
}

// startupTime is the time within which a new agent reports its ports and is found in the network.
const startupTime = 2 * time.Second

// Expected reports whether an agent that cannot be used yet will probably be usable soon. starting
// reports that the service has just been started.
func (r *Registry[C, R, L]) Expected(starting bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.list {
		s := &a.state
		ready := s.Liveness == Up && s.Status.Instance != "" && len(s.Places) == len(s.Addrs)
		if !ready && (starting || time.Since(a.upSince) < startupTime) && s.Liveness != Silent {
			return true
		}
	}
	return false
}
