package sos

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/rule"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// TestGuardsCoverTheSessionPorts looks up, in the rules of one agent, every port from which it may
// send.
func TestGuardsCoverTheSessionPorts(t *testing.T) {
	ports := control.PortRange{First: 10240, Last: 32767}
	for _, flags := range []bool{false, true} {
		rules, err := StrayRules(at(1, portX), agentX.Addr(), ports, flags)
		if err != nil {
			t.Fatal(err)
		}
		checkGuards(t, rules, ports)
	}
}

func checkGuards(t *testing.T, rules []network.Rule, ports control.PortRange) {
	t.Helper()
	covered := func(port uint16) bool {
		for _, r := range rules {
			for o := range r.Match.Fields() {
				if o.Field == openflow.FieldTCPSrc && uint16(o.Uint()) == port&maskOf(o) {
					return true
				}
			}
		}
		return false
	}
	for port := range 1 << 16 {
		want := ports.First <= uint16(port) && uint16(port) <= ports.Last
		if covered(uint16(port)) != want {
			t.Fatalf("port %d: covered %v, want %v", port, !want, want)
		}
	}
	for _, r := range rules {
		if r.Switch != 1 || r.Priority() >= rule.StageRewrite.Base() || len(r.Actions) != 1 || r.Actions[0].Port() != openflow.PortController {
			t.Errorf("rule %+v", r)
		}
	}
}

func maskOf(o openflow.OXM) uint16 {
	if !o.Masked {
		return 0xffff
	}
	return uint16(o.Mask[0])<<8 | uint16(o.Mask[1])
}

func TestOnlySessionsLeaveAgents(t *testing.T) {
	b := newBench(t)
	b.eventually("the agents are guarded", func() bool {
		rules := b.net.snapshot()
		return len(rules["guard/"+agentX.Addr().String()]) > 0 && len(rules["guard/"+agentY.Addr().String()]) > 0
	})
	_, held := b.syn(netip.AddrPortFrom(hostA.Addr(), 4000))
	if fate := b.fate(held); fate != "released" {
		t.Fatalf("the first packet was %s", fate)
	}
	b.service.mu.Lock()
	var known []flow
	for f := range b.service.sessions.agentFlows {
		known = append(known, f)
	}
	b.service.mu.Unlock()
	if len(known) != 2 {
		t.Fatalf("known flows of agents: %v, want one for each side", known)
	}
	sent := 0
	again := func(err error) func() error { return func() error { sent++; return err } }
	for _, f := range known {
		b.service.fromAgent(f, again(nil))
	}
	if sent != 2 {
		t.Errorf("%d packets of the session were sent on, want 2", sent)
	}
	stray := flow{netip.AddrPortFrom(agentX.Addr(), 31000), hostA}
	b.service.fromAgent(stray, again(nil))
	b.service.fromAgent(known[0], again(network.ErrResubmitted))
	if sent != 3 {
		t.Errorf("a stray was sent on")
	}
	var strays dto.Metric
	if err := b.service.metrics.strays.Write(&strays); err != nil || strays.Counter.GetValue() != 2 {
		t.Errorf("%v strays counted, %v; want 2", strays.Counter.GetValue(), err)
	}
	b.x.finish(b.x.only(t), agentapi.ReasonClosed)
	b.y.finish(b.y.only(t), agentapi.ReasonClosed)
	b.clean()
	b.service.mu.Lock()
	defer b.service.mu.Unlock()
	if n := len(b.service.sessions.agentFlows); n != 0 {
		t.Errorf("%d flows of agents are remembered after the end", n)
	}
}

func TestGuardsGoWithTheirAgent(t *testing.T) {
	b := newBench(t)
	b.eventually("the agent is guarded", func() bool { return len(b.net.snapshot()["guard/"+agentX.Addr().String()]) > 0 })
	if err := b.service.agents.Remove(t.Context(), "x", true); err != nil {
		t.Fatal(err)
	}
	b.service.wake()
	b.eventually("the guard is gone", func() bool { return len(b.net.snapshot()["guard/"+agentX.Addr().String()]) == 0 })
}

func TestRefusedGuardIsRemembered(t *testing.T) {
	b := newBench(t)
	b.service.strayRules.recordResult(agentX.Addr().String(), errors.New("no masks"))
	if failed := b.service.strayRules.failures(); failed[agentX.Addr().String()] != "no masks" {
		t.Errorf("refused: %v", failed)
	}
}

// TestGuardsSideBySide checks that the guard rules of two agents are written at the same time: the
// switch accepts none of one agent before it receives those of the other.
func TestGuardsSideBySide(t *testing.T) {
	b := newBench(t)
	var meeting sync.WaitGroup
	meeting.Add(2)
	met := make(chan struct{})
	go func() { meeting.Wait(); close(met) }()
	arrive := map[string]func(){}
	for _, a := range []netip.Addr{agentX.Addr(), agentY.Addr()} {
		arrive["guard/"+a.String()] = sync.OnceFunc(meeting.Done)
	}
	b.net.mu.Lock()
	b.net.wait = func(ctx context.Context, key string) {
		if f := arrive[key]; f != nil {
			f()
			select {
			case <-met:
			case <-ctx.Done():
				select {
				case <-met: // or the bench ends
				default:
					t.Errorf("%s waits for the other in vain", key)
				}
			}
		}
	}
	b.net.mu.Unlock()
	b.service.strayRules.apply(t.Context(), b.service.wantedStrayRules(), network.ApplyOptions{})
	<-met
}
