package sos

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/kit/agents"
	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/sos/agentapi"
)

// TestSilentAgent tests an agent from which the controller receives nothing. Whether its session
// ends depends on what others know of the agent.
func TestSilentAgent(t *testing.T) {
	heard := []control.PeerStatus{{Addr: agentX.Addr(), Silence: agentapi.Duration(400 * time.Millisecond)}}
	silent := []control.PeerStatus{{Addr: agentX.Addr(), Silence: agentapi.Duration(2 * time.Second)}}
	for _, c := range []struct {
		name  string
		peers []control.PeerStatus
		off   bool // its machine does not answer
		ill   func(*fakeNet)
		other func(*bench) // what happens to the other agent
		lost  bool
	}{
		{name: "the other agent hears it", peers: heard},
		{name: "the other agent hears it, its machine does not answer", peers: heard, off: true},
		{name: "the other agent does not hear it, its machine answers", peers: silent},
		{name: "the other agent does not hear it, nor its machine", peers: silent, off: true, lost: true},
		{name: "the other agent knows nothing of it, its machine does not answer", off: true, lost: true},
		{name: "the other agent does not hear it, its switch does not answer", peers: silent, off: true, ill: func(n *fakeNet) {
			n.SetDeaf(1)
		}},
		{name: "the other agent hears it, its port has just gone down", peers: heard, ill: func(n *fakeNet) {
			n.SetDown(at(1, portX), true)
		}},
		{name: "nobody can say", off: true, other: func(b *bench) { close(b.y.mute) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			if _, err := b.service.selection.setConfig(t.Context(), ConfigChange{SilentAfter: new("3s")}); err != nil {
				t.Fatal(err)
			}
			_, held := b.syn(hostA)
			if got := b.fate(held); got != "released" {
				t.Fatalf("the packet was %s", got)
			}
			b.eventually("the session is live", func() bool { return len(b.service.records("live")) == 1 })
			b.y.mu.Lock()
			b.y.peers = c.peers
			b.y.mu.Unlock()
			if c.ill != nil {
				c.ill(b.net)
			}
			if c.other != nil {
				c.other(b)
			}
			if c.off {
				close(b.x.off)
			}
			close(b.x.mute)
			b.eventually("the agent is silent", func() bool { return b.state("x") == agents.Silent })
			if c.lost {
				b.eventually("the session is over", func() bool {
					past := b.past()
					return len(past) == 1 && past[0].How == "agent lost: x"
				})
				return
			}
			b.service.agents.Judge(t.Context(), b.agent("x"))
			if live := b.service.records("live"); len(live) != 1 || live[0].State != StateLive {
				t.Errorf("sessions after the judgement: %+v", live)
			}
		})
	}
}

// TestUnpluggedAgent takes down the port of an agent that answers. It checks that a new session
// avoids the agent, and that its sessions end when the port stays down.
func TestUnpluggedAgent(t *testing.T) {
	b := newBench(t)
	_, held := b.syn(hostA)
	if got := b.fate(held); got != "released" {
		t.Fatalf("the packet was %s", got)
	}
	set := func(kind network.EventKind, down bool) {
		b.net.SetDown(at(1, portX), down)
		b.service.NetworkChanged(network.Event{Kind: kind, Switch: 1, Port: at(1, portX)})
	}
	set(network.PortDown, true)
	b.eventually("the agent is passed over", func() bool { return b.unfit("x") != "" })
	set(network.PortUp, false)
	b.eventually("the agent is used again", func() bool { return b.unfit("x") == "" })
	if live := b.service.records("live"); len(live) != 1 {
		t.Errorf("sessions after a port that flapped: %+v", live)
	}
	set(network.PortDown, true)
	b.eventually("the session is over", func() bool { return len(b.past()) == 1 })
}

func (b *bench) agent(name string) *agent {
	return b.service.agents.Get(name)
}

func (b *bench) state(name string) agents.Liveness {
	return b.agent(name).State().Liveness
}

func (b *bench) unfit(name string) string {
	st := b.agent(name).State()
	return st.Unfit(hostA.Addr())
}
