package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/services/sos/wire"
)

// checkWarmPeers returns an error if a list of peers is invalid. dials reports whether the agent
// opens the connections.
func (a *Agent) checkWarmPeers(in agentapi.WarmPeers, dials bool) error {
	if len(in.Peers) > agentapi.MaxWarmPeers {
		return control.BadRequest("peers", "%d of them: want at most %d", len(in.Peers), agentapi.MaxWarmPeers)
	}
	if in.Lifetime <= 0 || in.Lifetime > agentapi.MaxWarmLifetime {
		return control.BadRequest("lifetime", "%v: want more than 0s, at most %v", in.Lifetime, agentapi.MaxWarmLifetime)
	}
	seen := map[agentapi.SessionID]bool{}
	for i := range in.Peers {
		p, field := &in.Peers[i], fmt.Sprintf("peers[%d].", i)
		if err := a.checkPeerAddr(field+"peer.addr", p.Peer.Addr); err != nil {
			return err
		}
		switch ports := p.Peer.DataPorts; {
		case p.ID.IsZero() || seen[p.ID]:
			return control.BadRequest(field+"id", "missing, or used twice: want 32 hex digits, not all 0")
		case p.Key.IsZero():
			return control.BadRequest(field+"key", "missing: want 32 bytes in base64, not all 0")
		case dials && len(ports) == 0, len(ports) > agentapi.MaxWarmPaths, slices.Contains(ports, 0):
			return control.BadRequest(field+"peer.data_ports", "%v: want 1 to %d ports, none 0", ports, agentapi.MaxWarmPaths)
		}
		if err := cmp.Or(checkPaths(p.Paths), a.checkParams(&p.Params)); err != nil {
			return err
		}
		seen[p.ID] = true
	}
	return nil
}

// warmRequest returns a peer in the form of a session's announcement.
func warmRequest(p *agentapi.WarmPeer, role agentapi.Role) *agentapi.PrepareRequest {
	return &agentapi.PrepareRequest{ID: p.ID, Key: p.Key, Role: role, Peer: p.Peer, Params: p.Params, Paths: p.Paths}
}

// expectPeers replaces the list of peers whose connections the agent accepts before a session needs
// them.
func (a *Agent) expectPeers(in agentapi.WarmPeers) error {
	if err := a.checkWarmPeers(in, false); err != nil {
		return err
	}
	for i := range in.Peers {
		p := &in.Peers[i]
		if err := a.prepareForPeer(p, agentapi.RoleServer); err != nil {
			a.log.Debug("connections of a peer start slowly", "peer", p.Peer.Addr, "error", err)
		}
	}
	a.expected.set(in.Peers, time.Now().Add(time.Duration(in.Lifetime)))
	return nil
}

// prepareForPeer makes connections with a peer start at the known rate of their paths.
func (a *Agent) prepareForPeer(p *agentapi.WarmPeer, role agentapi.Role) error {
	via, err := a.routes.lookup(p.Peer.Addr)
	if err != nil {
		return fmt.Errorf("route to agent %v: %w", p.Peer.Addr, err)
	}
	a.setInitialWindow(a.cfg.addrFor(p.Peer.Addr), warmRequest(p, role), via, a.cfg.params(p.Params))
	return nil
}

// warmPeers replaces the list of peers to which the agent opens connections before a session needs
// them, and opens the missing ones. Lists are handled one after the other.
func (a *Agent) warmPeers(r *http.Request, in agentapi.WarmPeers) ([]agentapi.WarmStatus, error) {
	if err := a.checkWarmPeers(in, true); err != nil {
		return nil, err
	}
	if !a.enter() {
		return nil, &control.Problem{Title: "agent is stopping", Code: control.CodeDraining}
	}
	defer a.wg.Done()
	ctx, cancel := context.WithTimeout(a.ctx, 2*a.cfg.OpeningTimeout)
	defer cancel()
	defer context.AfterFunc(r.Context(), cancel)()
	select {
	case a.warming <- struct{}{}:
		defer func() { <-a.warming }()
	case <-ctx.Done():
		return nil, &control.Problem{Title: "another list of peers is being handled", Code: control.CodeFull}
	}
	wanted := map[warmKey]bool{}
	for i := range in.Peers {
		for _, k := range a.warmKeys(&in.Peers[i]) {
			wanted[k] = true
		}
	}
	a.warm.want(wanted, time.Now().Add(time.Duration(in.Lifetime)))
	out := make([]agentapi.WarmStatus, len(in.Peers))
	var wg sync.WaitGroup
	for i := range in.Peers {
		wg.Go(func() { out[i] = a.warmPeer(ctx, &in.Peers[i]) })
	}
	wg.Wait()
	return out, nil
}

// enter counts a request that Close has to wait for, until a.wg.Done is called. It returns false if
// the agent is closing.
func (a *Agent) enter() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	a.wg.Add(1)
	return true
}

// warmKeys returns the kind of each connection that a session with the peer opens at first.
func (a *Agent) warmKeys(p *agentapi.WarmPeer) []warmKey {
	params, ports := a.cfg.params(p.Params), p.Peer.DataPorts
	if params.Paths > 0 && params.Paths < len(ports) {
		ports = ports[:params.Paths]
	}
	n := expectedConns
	if params.Connections == 1 || a.cfg.AutoConnections == 1 {
		n = 1
	}
	keys := make([]warmKey, min(max(n, len(ports)), a.cfg.WarmPerPeer))
	for i := range keys {
		keys[i] = warmKey{netip.AddrPortFrom(p.Peer.Addr, ports[i%len(ports)]), params.Transport, params.TLS}
	}
	return keys
}

// warmPeer opens the connections to one peer that are missing.
func (a *Agent) warmPeer(ctx context.Context, p *agentapi.WarmPeer) agentapi.WarmStatus {
	keys := a.warmKeys(p)
	lacking := a.warm.lacking(keys, p.Renew, time.Now())
	out := agentapi.WarmStatus{Peer: p.Peer.Addr, Ready: len(keys) - len(lacking)}
	if len(lacking) == 0 {
		return out
	}
	err := a.prepareForPeer(p, agentapi.RoleClient)
	if err == nil {
		errs := make([]error, len(lacking))
		var wg sync.WaitGroup
		for i, k := range lacking {
			wg.Go(func() { errs[i] = a.openWarm(ctx, p, k, i) })
		}
		wg.Wait()
		out.Opened = len(lacking) - len(slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil }))
		err = errors.Join(errs...)
	}
	out.Ready += out.Opened
	a.metrics.openedEarly.Add(float64(out.Opened))
	if err != nil {
		a.metrics.failedEarly.Add(float64(len(lacking) - out.Opened))
		a.warnLimit.Warn(a.log, "connections could not be opened before the first session with a peer", "peer", p.Peer.Addr, "error", err)
		out.Error = err.Error()
	} else {
		a.log.Info("connections are open before the first session with a peer", "peer", p.Peer.Addr, "connections", out.Opened)
	}
	return out
}

// openWarm opens one connection to a peer, proves the key to the peer, waits for the peer's proof,
// and adds the connection to the pool.
func (a *Agent) openWarm(ctx context.Context, p *agentapi.WarmPeer, k warmKey, index int) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.OpeningTimeout)
	defer cancel()
	nc, err := a.dialPeer(ctx, a.cfg.addrFor(p.Peer.Addr), k.peer, a.cfg.params(p.Params), 0)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })()
	opening, err := a.sendOpening(nc, wire.Opening{Index: uint16(index), Generation: 1, Session: p.ID}, p.Key)
	if err == nil {
		err = a.readAnswer(nc, opening, p.Key, p.Peer.Addr)
	}
	if err != nil {
		resetNow(nc)
		return err
	}
	if !a.warm.putUnused(k, nc) {
		return fmt.Errorf("connection to agent %v: the agent keeps as many idle connections as it may", p.Peer.Addr)
	}
	return nil
}
