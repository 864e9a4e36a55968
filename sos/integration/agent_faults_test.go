package integration

import (
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/sos/agent"
)

// resetWithin is how long the ends of a lost agent's sessions may wait.
const resetWithin = 3 * time.Second

// hungWithin is the same of an agent that runs, as its machine says, but hangs.
const hungWithin = 20 * time.Second

// cutOffWithin is the same of an agent whose port goes down: it may come up again,
// and is taken for down after 2.5 s.
const cutOffWithin = 2500*time.Millisecond + resetWithin

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

// TestAgentDeadBeforePrepare has an agent that died a moment ago.
func TestAgentDeadBeforePrepare(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"x", "y"} {
		t.Run(host, func(t *testing.T) {
			w := newWorld(t, lab.WAN("sosdead", wan), options{})
			w.serve(80, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
			w.agents[host].kill()
			start := time.Now()
			w.echo(80)
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("the direct connection took %v", took)
			}
			w.clean()
		})
	}
}

// TestAgentKilled kills an agent in mid-session: both ends get a reset, whether
// they are sending, receiving or idle.
func TestAgentKilled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		host string
		busy bool
	}{{"x", true}, {"x", false}, {"y", true}, {"y", false}} {
		name := c.host + " idle"
		if c.busy {
			name = c.host + " busy"
		}
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, lab.WAN("soskill", wan), options{})
			w.loseAgent(c.busy, w.agents[c.host].kill)
		})
	}
}

// TestAgentStops stops an agent for longer than the controller waits for a word of
// it, as one is that gets no processor: its kernel still holds its connections, and
// its sessions go on when it does.
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

// TestAgentHangs stops an agent for good: nobody waits for it for ever.
func TestAgentHangs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("soshang", wan), options{})
	w.loseAgentWithin(hungWithin, false, func() { w.agents["x"].signal(syscall.SIGSTOP) })
	w.agents["x"].signal(syscall.SIGCONT)
}

// TestAgentCutOff takes the link between an agent and its switch away: the
// controller still hears of the agent, but its end host does not.
func TestAgentCutOff(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"x", "y"} {
		t.Run(host, func(t *testing.T) {
			w := newWorld(t, lab.WAN("soscut", wan), options{})
			w.loseAgentWithin(cutOffWithin, true, func() {
				if err := w.lab.SetLink(t.Context(), w.linkOf(host), false); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestAnswerOfEndHostLost loses the first answers of an end host that is to be told that its
// connection is over, as a switch does that still forwards by a rule that was replaced. It is
// told by the next: a kernel may answer segments without data, outside its window, only twice
// a second.
func TestAnswerOfEndHostLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sosanswer", wan), options{})
	w.loseAgent(false, func() {
		w.inHost("client", "nft", `table ip test {
			counter asked { }
			counter answered { }
			chain in { type filter hook input priority 0; tcp sport 80 tcp flags & rst == 0 counter name asked; }
			chain out { type filter hook output priority 0; tcp dport 80 tcp flags & rst == 0 counter name answered quota until 100 bytes drop; }
		}`)
		w.cutOff("x")
	})
	asked, answered := w.counted("client", "asked"), w.counted("client", "answered")
	if answered < 2 || asked > answered+1 {
		t.Errorf("%d answers to %d segments, nearly all of them outside the window", answered, asked)
	}
}

// counted is how many packets a counter of the table test has counted on a host.
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

// linkOf is the link by which a host is connected.
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

// loseAgent starts a session, loses an agent, and checks that both ends see a
// reset soon.
func (w *world) loseAgent(busy bool, lose func()) {
	w.t.Helper()
	w.loseAgentWithin(resetWithin, busy, lose)
}

// loseAgentWithin is loseAgent with a bound of its own.
func (w *world) loseAgentWithin(within time.Duration, busy bool, lose func()) {
	w.t.Helper()
	server := make(chan error, 1)
	w.serve(80, func(c *net.TCPConn) {
		if busy {
			_, err := io.Copy(c, content(1))
			server <- err
			return
		}
		_, err := io.Copy(io.Discard, c)
		server <- err
	})
	c := w.mustDial(80)
	client := make(chan error, 1)
	go func() {
		_, _, err := drain(c, within+patience)
		client <- err
	}()
	w.live()
	if busy {
		w.eventually("bytes flow", func() bool { return w.live().BytesDown > 1<<20 })
	}
	start := time.Now()
	lose()
	for end, result := range map[string]chan error{"client": client, "server": server} {
		select {
		case err := <-result:
			if err == nil || timedOut(err) {
				w.t.Errorf("the %s sees %v, want a reset", end, err)
			}
			w.t.Logf("the %s sees %v", end, err)
		case <-time.After(within - time.Since(start)):
			w.t.Errorf("the %s still hangs after %v", end, within)
		}
	}
	w.t.Logf("both ends know after %v", time.Since(start))
	w.eventually("the session is over", func() bool { return len(w.sessions("live")) == 0 })
	for _, s := range w.switches() {
		w.eventually("no rule is left in "+s, func() bool { return len(w.serviceRules(s)) == 0 })
	}
}
