package agents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/kit/control"
)

// An agent that the controller does not hear may be dead, or it may be cut off from the controller
// while it carries its sessions well. TCP connections survive an outage, so sessions must survive
// it, too. The registry therefore asks everyone who may know whether the agent is dead.
const (
	// judgeInterval is the interval at which Judge is called for a silent agent.
	judgeInterval = 250 * time.Millisecond
	// peerStatusTimeout bounds the request to another agent about a silent one.
	peerStatusTimeout = 500 * time.Millisecond
	// heardWithin is the silence up to which an agent's peer counts as alive. Peers send twice a
	// second.
	heardWithin = 1200 * time.Millisecond
	// knockTimeout bounds the time to connect to an agent's machine. knockValid is the time for
	// which the result of such an attempt is used.
	knockTimeout = probeTimeout
	knockValid   = time.Second
	// hungTimeout is how long an agent may be silent to everybody while its machine accepts
	// connections. The agent may be stopped for good, or may have no processor for a while.
	hungTimeout = 15 * time.Second
)

var (
	errNotRunning = errors.New("its machine refuses connections: it does not run")
	errUnplugged  = errors.New("its port is down")
	errNoAnswer   = errors.New("its switch answers, but its machine does not, nor does the other agent hear it")
	errHung       = fmt.Errorf("it runs, but has said nothing for %v", hungTimeout)
)

// judgeWhileSilent calls Judge at intervals until the agent is heard again or removed.
func (r *Registry[C, R, L]) judgeWhileSilent(ctx context.Context, a *Agent[C]) {
	for a.State().Liveness == Silent && r.Get(a.Name) == a {
		r.Judge(ctx, a)
		if tasks.Sleep(ctx, judgeInterval) != nil {
			return
		}
	}
}

// Judge ends the sessions of a silent agent that it finds to be dead. If other agents still hear
// the agent, their common sessions go on.
func (r *Registry[C, R, L]) Judge(ctx context.Context, a *Agent[C]) {
	peers := r.Peers(a)
	if len(peers) == 0 {
		return
	}
	if err := r.presumedDead(a); err != nil {
		r.Lost(a, nil, err)
		return
	}
	probe := sync.OnceValue(func() error { return r.probeDead(ctx, a) })
	var all sync.WaitGroup
	for _, o := range peers {
		all.Go(func() {
			if o != nil && !reportsUnheard[C, R, L](ctx, o, a) {
				return
			}
			if err := probe(); err != nil {
				r.Lost(a, o, err)
			}
		})
	}
	all.Wait()
}

// presumedDead returns why a silent agent is dead if no further request is needed to know it, and
// nil otherwise. Ports are watched separately, by watchPlug.
func (r *Registry[C, R, L]) presumedDead(a *Agent[C]) error {
	_, deadAfter := r.Timing()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case a.refused:
		return errNotRunning
	case time.Since(a.silentSince) > deadAfter:
		return fmt.Errorf("silent for %v", deadAfter)
	}
	return nil
}

// probeDead returns why an agent that no other agent hears is dead, or nil if it may be alive. The
// kernel of its machine answers even if the agent gets no processor.
func (r *Registry[C, R, L]) probeDead(ctx context.Context, a *Agent[C]) error {
	_, deadAfter := r.Timing()
	r.mu.Lock()
	answered, silentSince, early, knocked := a.answered, a.silentSince, a.noAnswer, a.knocked
	r.mu.Unlock()
	switch {
	case time.Since(answered) < knockValid:
		return nil
	case early != nil && time.Since(knocked) < knockValid:
		return early
	}
	answer := make(chan error, 1)
	go func() { answer <- knock(ctx, a.Client.Knock) }()
	switchAlive := r.switchAnswers(ctx, a)
	switch err := <-answer; {
	case errors.Is(err, syscall.ECONNREFUSED):
		return errNotRunning
	case err != nil && switchAlive:
		return errNoAnswer
	case err != nil: // the network near the agent may be down
		return nil
	}
	if switchAlive && time.Since(silentSince) > min(hungTimeout, deadAfter) {
		return errHung
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a.answered = time.Now()
	return nil
}

// knockEarly probes an agent's machine and its switch at the same time, and records the result if
// the switch answered and the machine did not.
func knockEarly[C Client[R, L], R, L any](ctx context.Context, r *Registry[C, R, L], a *Agent[C]) {
	limited, cancel := context.WithTimeout(ctx, knockTimeout)
	defer cancel()
	switchAlive := make(chan bool, 1)
	go func() { switchAlive <- r.switchAnswers(limited, a) }()
	err := knock(ctx, a.Client.Knock)
	if !<-switchAlive || err == nil {
		return
	}
	why := errNoAnswer
	if errors.Is(err, syscall.ECONNREFUSED) {
		why = errNotRunning
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a.noAnswer, a.knocked = why, time.Now()
}

// knock checks whether a process listens at an agent's control port. It asks twice at the same
// time, because one packet may be lost.
func knock(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, knockTimeout)
	defer cancel()
	second := make(chan error, 1)
	go func() { second <- ask(ctx) }()
	first := ask(ctx)
	if err := <-second; first != nil {
		return err
	}
	return nil
}

// reportsUnheard reports whether agent o answers and does not hear its peer a. It recognises a by
// its data addresses, which never change.
func reportsUnheard[C Client[R, L], R, L any](ctx context.Context, o, a *Agent[C]) bool {
	ctx, cancel := context.WithTimeout(ctx, peerStatusTimeout)
	defer cancel()
	st, err := o.Client.Status(ctx)
	addrs := a.State().Addrs
	return err == nil && !slices.ContainsFunc(st.Peers, func(p control.PeerStatus) bool {
		return time.Duration(p.Silence) <= heardWithin && slices.Contains(addrs, p.Addr)
	})
}

// switchAnswers reports whether all switches to which the agent is attached answer.
func (r *Registry[C, R, L]) switchAnswers(ctx context.Context, a *Agent[C]) bool {
	ports := r.portsOf(a)
	for _, at := range ports {
		if !r.Network.Alive(ctx, at.Switch) {
			return false
		}
	}
	return len(ports) > 0
}
