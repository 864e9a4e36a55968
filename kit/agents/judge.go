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

// An agent of which the controller hears nothing may be dead, or behind a way that
// is down while it carries its sessions well, or will again: TCP outlives an outage,
// so its sessions have to. What tells the two apart is asked of whoever can know.
const (
	// judgeEvery is how often those who may know are asked.
	judgeEvery = 250 * time.Millisecond
	// askPartner bounds an agent's answer about another.
	askPartner = 500 * time.Millisecond
	// heardWithin is the silence of a peer that an agent takes for life: peers
	// speak twice a second.
	heardWithin = 1200 * time.Millisecond
	// knockTimeout bounds how long an agent's machine may take to answer, as long as
	// the agent may, and knockAgain is how long its answer holds.
	knockTimeout = probeTimeout
	knockAgain   = time.Second
	// hungFor is how long an agent may say nothing to anybody while its machine
	// says that it runs: it may be stopped for good, or have no processor for now.
	hungFor = 15 * time.Second
)

var (
	errNotRunning = errors.New("its machine refuses connections: it does not run")
	errUnplugged  = errors.New("its port is down")
	errNoAnswer   = errors.New("its switch answers, but its machine does not, nor does the other agent hear it")
	errHung       = fmt.Errorf("it runs, but has said nothing for %v", hungFor)
)

// judgeWhileSilent ends the sessions of a silent agent as soon as something says
// that it is dead, until it is heard again or removed.
func (r *Registry[C, R, L]) judgeWhileSilent(ctx context.Context, a *Agent[C]) {
	for a.State().Liveness == Silent && r.Get(a.Name) == a {
		r.Judge(ctx, a)
		if tasks.Sleep(ctx, judgeEvery) != nil {
			return
		}
	}
}

// Judge ends that of a silent agent's sessions of which it is the dead end.
func (r *Registry[C, R, L]) Judge(ctx context.Context, a *Agent[C]) {
	peers := r.Peers(a)
	if len(peers) == 0 {
		return
	}
	if err := r.dead(a); err != nil {
		r.Lost(a, nil, err)
		return
	}
	lifeless := sync.OnceValue(func() error { return r.lifeless(ctx, a) })
	var all sync.WaitGroup
	for _, o := range peers {
		all.Go(func() {
			if o != nil && !unheard[C, R, L](ctx, o, a) {
				return
			}
			if err := lifeless(); err != nil {
				r.Lost(a, o, err)
			}
		})
	}
	all.Wait()
}

// dead says why a silent agent is dead without asking anybody, or nil. Its port is
// watched apart.
func (r *Registry[C, R, L]) dead(a *Agent[C]) error {
	_, patience := r.Timing()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case a.refused:
		return errNotRunning
	case time.Since(a.silentSince) > patience:
		return fmt.Errorf("silent for %v", patience)
	}
	return nil
}

// lifeless says why an agent is dead that no other agent hears either, or nil. An
// agent that gets no processor says nothing, but its machine answers for it.
func (r *Registry[C, R, L]) lifeless(ctx context.Context, a *Agent[C]) error {
	_, patience := r.Timing()
	r.mu.Lock()
	answered, silentSince, early, knocked := a.answered, a.silentSince, a.noAnswer, a.knocked
	r.mu.Unlock()
	switch {
	case time.Since(answered) < knockAgain:
		return nil
	case early != nil && time.Since(knocked) < knockAgain:
		return early
	}
	answer := make(chan error, 1)
	go func() { answer <- knock(ctx, a.Client.Knock) }()
	near := r.switchAnswers(ctx, a)
	switch err := <-answer; {
	case errors.Is(err, syscall.ECONNREFUSED):
		return errNotRunning
	case err != nil && near:
		return errNoAnswer
	case err != nil: // the network may be down there
		return nil
	}
	if near && time.Since(silentSince) > min(hungFor, patience) {
		return errHung
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a.answered = time.Now()
	return nil
}

// knockEarly asks an agent's machine and its switch at one time, and notes if the switch answered, and the machine did not.
func knockEarly[C Client[R, L], R, L any](ctx context.Context, r *Registry[C, R, L], a *Agent[C]) {
	limited, cancel := context.WithTimeout(ctx, knockTimeout)
	defer cancel()
	near := make(chan bool, 1)
	go func() { near <- r.switchAnswers(limited, a) }()
	err := knock(ctx, a.Client.Knock)
	if !<-near || err == nil {
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

// knock asks an agent's machine whether anybody listens at its control port: twice
// at once, since one packet may be lost.
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

// unheard reports whether agent o answers, and says that it does not hear its peer
// a. What either knows of its addresses is fixed.
func unheard[C Client[R, L], R, L any](ctx context.Context, o, a *Agent[C]) bool {
	ctx, cancel := context.WithTimeout(ctx, askPartner)
	defer cancel()
	st, err := o.Client.Status(ctx)
	addrs := a.State().Addrs
	return err == nil && !slices.ContainsFunc(st.Peers, func(p control.PeerStatus) bool {
		return time.Duration(p.Silence) <= heardWithin && slices.Contains(addrs, p.Addr)
	})
}

// switchAnswers asks the switches at which the agent stands for a sign of life.
func (r *Registry[C, R, L]) switchAnswers(ctx context.Context, a *Agent[C]) bool {
	ports := r.portsOf(a)
	for _, at := range ports {
		if !r.Network.Alive(ctx, at.Switch) {
			return false
		}
	}
	return len(ports) > 0
}
