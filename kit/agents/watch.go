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
	// probes is how often an agent is asked whether it is alive; probeTimeout
	// bounds each question, probePause lies between them.
	probes       = 2
	probeTimeout = 300 * time.Millisecond
	probePause   = 50 * time.Millisecond
	// retryAfter is how soon an agent that was given up is tried again.
	retryAfter = time.Second
	// greetTimeout bounds what is asked of an agent that has just been heard.
	greetTimeout = 5 * time.Second
)

// ErrReplaced is why what an agent did is over when it was started again.
var ErrReplaced = errors.New("agent was started again")

// watch follows one agent's events until ctx ends. It gives the agent up
// when it is silent, and takes it back when it is heard again.
func (r *Registry[C, R, L]) watch(ctx context.Context, a *Agent[C]) {
	for ctx.Err() == nil {
		err := r.followEvents(ctx, a)
		if ctx.Err() != nil {
			return
		}
		pause := probePause
		if dead := r.ask(ctx, a); dead != nil {
			r.giveUp(a, err, dead)
			pause = retryAfter
		}
		if tasks.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// followEvents returns when the stream ends, with the reason.
func (r *Registry[C, R, L]) followEvents(ctx context.Context, a *Agent[C]) error {
	silent, _ := r.Timing()
	silent -= probes * (probeTimeout + probePause) // the questions have to be asked as well
	return a.Client.Watch(ctx, min(silent, control.Silence), func(e control.Event[R, L]) { r.take(a, e) })
}

// ask asks an agent whose event stream broke for its state, since a broken stream
// is no proof: twice, with short deadlines, before it is given up. The error says
// how it did not answer. Its machine is knocked at beside the second time, lest that takes more time afterwards.
func (r *Registry[C, R, L]) ask(ctx context.Context, a *Agent[C]) error {
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

// Ask asks an agent for its state, and keeps it.
func (r *Registry[C, R, L]) Ask(ctx context.Context, a *Agent[C]) error {
	st, err := a.Client.Status(ctx)
	if err == nil {
		r.learn(a, st)
	}
	return err
}

// learn keeps what an agent's status says.
func (r *Registry[C, R, L]) learn(a *Agent[C], st control.Status) {
	r.mu.Lock()
	changed := a.state.Status.SessionPorts != st.SessionPorts
	st.Load, st.DrainRequests = latest(&a.state.Status, st.Instance, st.DrainRequests, st.Load)
	a.state.Status = st
	r.mu.Unlock()
	if changed {
		r.Changed()
	}
}

// latest is a load that is heard now, with whether the agent drains as it said after most requests:
// its words overtake each other.
func latest(known *control.Status, instance string, drainRequests uint64, l control.Load) (control.Load, uint64) {
	if known.Instance == instance && drainRequests < known.DrainRequests {
		l.Draining, drainRequests = known.Draining, known.DrainRequests
	}
	return l, drainRequests
}

// take takes in one event. An agent is up when its first word has been taken in, not before:
// who finds it up knows what it has told.
func (r *Registry[C, R, L]) take(a *Agent[C], e control.Event[R, L]) {
	r.mu.Lock()
	replaced := a.instance != "" && a.instance != e.Instance
	returned := a.state.Liveness != Up
	before := a.stored && a.instance == "" // we have not heard it yet, but another controller may have
	if a.instance != e.Instance {
		a.instance, a.lastSeq = e.Instance, 0
	}
	a.state.LastSeen = time.Now()
	if returned { // it is not given up while its word is taken in
		a.refused, a.silentSince = false, a.state.LastSeen
	}
	st := &a.state.Status
	st.Load, st.DrainRequests = latest(st, e.Instance, e.DrainRequests, e.Status)
	fresh := e.Seq - min(e.Seq, a.lastSeq)
	missed := fresh > uint64(len(e.Ended))
	e.Ended = e.Ended[len(e.Ended)-int(min(fresh, uint64(len(e.Ended)))):]
	a.lastSeq = max(a.lastSeq, e.Seq)
	url := a.state.URL
	r.mu.Unlock()
	r.Event(a, e, before)
	if returned {
		r.mu.Lock()
		a.state.Liveness, a.state.Error, a.news = Up, "", a.state.LastSeen
		r.mu.Unlock()
		r.Publish("agent.up", map[string]any{"agent": a.Name})
		r.Log.Info("agent is up", "agent", a.Name, "url", url)
		r.tasks.Start(func(ctx context.Context) { r.greet(ctx, a) })
		r.Changed()
	}
	if replaced {
		r.Lost(a, nil, ErrReplaced)
	} else if missed {
		r.tasks.Start(func(ctx context.Context) { r.Missed(ctx, a) })
	}
}

// greet completes what is known of an agent that has just been heard.
func (r *Registry[C, R, L]) greet(ctx context.Context, a *Agent[C]) {
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	st, err := a.Client.Status(ctx)
	if draining := a.State().Draining; err == nil && st.Draining != draining {
		// It was drained for a controller that has forgotten it since, or was not
		// reached when it was.
		st, err = a.Client.Drain(ctx, draining)
	}
	if err == nil {
		r.learn(a, st)
	}
	r.Heard(ctx, a)
	r.find(ctx, a)
}

// giveUp takes an agent out of service whose events ended for cause, and which
// did not answer then. What becomes of its sessions is judged apart.
func (r *Registry[C, R, L]) giveUp(a *Agent[C], cause, answer error) {
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

// newsFor is how long after its first word it may take until an agent has told its ports
// and has been found in the network.
const newsFor = 2 * time.Second

// Expected says whether an agent that cannot be used yet will soon be. starting says that
// the service has just been started.
func (r *Registry[C, R, L]) Expected(starting bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.list {
		s := &a.state
		ready := s.Liveness == Up && s.Status.Instance != "" && len(s.Places) == len(s.Addrs)
		if !ready && (starting || time.Since(a.news) < newsFor) && s.Liveness != Silent {
			return true
		}
	}
	return false
}
