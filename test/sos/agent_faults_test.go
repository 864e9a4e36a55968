package sos

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/services/sos"
	"github.com/sluice-net/sluice/services/sos/agent"
)

// The server's ports of the connections of loseAgent.
const (
	busyPort = 80
	idlePort = 81
)

func TestAgentRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sosref", wan), options{agent: func(c *agent.Config) {
		if c.DataAddr.String() == "10.0.0.4" {
			c.MaxSessions = 1
		}
	}})
	w.serve(80, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	first := w.mustDial(80)
	w.live()
	w.echo(80) // the second connection goes directly
	if n := len(w.sessions("live")); n != 1 {
		t.Errorf("%d sessions, the agent takes one", n)
	}
	_ = first.Close()
	w.clean()
}

// TestAgentDeadBeforePrepare kills an agent just before a connection begins, which then
// goes directly.
func TestAgentDeadBeforePrepare(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"x", "y"} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, lab.WAN("sosdead", wan), options{})
			w.serve(80, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
			w.agents[host].kill()
			w.echo(80)
			w.clean()
		})
	}
}

// TestAgentKilled kills an agent in mid-session: both ends of its connections are reset,
// whether they are sending, receiving or idle.
func TestAgentKilled(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"x", "y"} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, lab.WAN("soskill", wan), options{})
			w.loseAgent(w.agents[host].kill)
		})
	}
}

// TestAgentStops stops an agent for longer than the controller waits for its answer, as if
// it got no processor time. Its kernel still holds its connections, and its sessions
// continue when it does.
func TestAgentStops(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"x", "y"} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			o := newOutage(t, "sosstop"+host)
			o.agents[host].signal(syscall.SIGSTOP)
			o.away(6 * time.Second)
			o.agents[host].signal(syscall.SIGCONT)
			o.survived()
		})
	}
}

// TestAgentHangs stops an agent permanently. Its kernel still answers, but its sessions
// end.
func TestAgentHangs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("soshang", wan), options{})
	w.loseAgent(func() { w.agents["x"].signal(syscall.SIGSTOP) })
	w.agents["x"].signal(syscall.SIGCONT)
}

// TestAgentCutOff takes down the link between an agent and its switch: the controller still
// hears the agent, but its end host does not.
func TestAgentCutOff(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"x", "y"} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, lab.WAN("soscut", wan), options{})
			w.loseAgent(func() {
				if err := w.lab.SetLink(t.Context(), w.linkOf(host), false); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestAnswerOfEndHostLost drops the first answers of an end host that the controller asks in
// order to reset its connection, as a switch does that still forwards by a rule that was
// replaced. The controller asks again and uses the next answer.
func TestAnswerOfEndHostLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sosanswer", wan), options{})
	w.loseAgent(func() {
		w.inHost("client", "nft", fmt.Sprintf(`table ip test {
			counter answered { }
			chain out { type filter hook output priority 0; tcp dport %d tcp flags & rst == 0 counter name answered quota until 100 bytes drop; }
		}`, idlePort))
		w.cutOff("x")
	})
	if n := w.counted("client", "answered"); n < 2 {
		t.Errorf("%d answers, the first of which were lost: want one more", n)
	}
}

// counted returns how many packets a counter of the table test has counted on a host.
func (w *world) counted(host, counter string) (n int) {
	w.t.Helper()
	out, err := w.lab.Host(host).Command(w.t.Context(), "nft", "list", "counter", "ip", "test", counter).Output()
	if err != nil {
		w.t.Fatalf("counter %s on %s: %v", counter, host, err)
	}
	_, after, _ := strings.Cut(string(out), "packets ")
	if _, err := fmt.Sscan(after, &n); err != nil {
		w.t.Fatalf("counter %s on %s: %v: %s", counter, host, err, out)
	}
	return n
}

// linkOf returns the link by which a host is connected.
func (w *world) linkOf(host string) string {
	w.t.Helper()
	for _, l := range w.lab.Topology().Links {
		if l.A.Node == host || l.B.Node == host {
			return l.Name
		}
	}
	w.t.Fatalf("host %s has no link", host)
	return ""
}

// TestAgentDiesDuringPrepare kills an agent that has been asked to prepare.
func TestAgentDiesDuringPrepare(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sosdur", wan), options{})
	w.serve(80, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	w.agents["y"].signal(syscall.SIGSTOP)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.echo(80)
	}()
	w.eventually("the session is being set up", func() bool { return len(w.sessions("live")) == 1 })
	w.agents["y"].kill()
	<-done
	w.direct("agents")
}

// loseAgent carries a busy and an idle connection, loses an agent, and checks that both
// ends of each are reset and that none of their rules is left.
func (w *world) loseAgent(lose func()) {
	w.t.Helper()
	results := map[string]chan error{}
	for port, kind := range map[uint16]string{busyPort: "busy", idlePort: "idle"} {
		server, client := make(chan error, 1), make(chan error, 1)
		results["server of the "+kind+" connection"], results["client of the "+kind+" connection"] = server, client
		w.serve(port, func(c *net.TCPConn) {
			var err error
			if kind == "busy" {
				_, err = io.Copy(c, content(1))
			} else {
				_, err = io.Copy(io.Discard, c)
			}
			server <- err
		})
		c := w.mustDial(port)
		go func() {
			_, _, err := drain(c, 4*testTimeout)
			client <- err
		}()
	}
	w.eventually("both sessions are live, and bytes flow", func() bool {
		list := w.sessions("live")
		busy := slices.ContainsFunc(list, func(r sos.Record) bool { return r.BytesDown > 1<<20 })
		return len(list) == 2 && list[0].State == sos.StateLive && list[1].State == sos.StateLive && busy
	})
	lose()
	deadline := time.After(2 * testTimeout)
	for end, result := range results {
		select {
		case err := <-result:
			if err == nil || timedOut(err) {
				w.t.Errorf("the %s sees %v, want a reset", end, err)
			}
		case <-deadline:
			w.t.Errorf("the %s still hangs", end)
		}
	}
	w.eventually("the sessions are over", func() bool { return len(w.sessions("live")) == 0 })
	for _, s := range w.switches() {
		w.eventually("no rule is left in "+s, func() bool { return len(w.serviceRules(s)) == 0 })
	}
}
