package agent

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/sos/agentapi"
)

// Switching live connections, and having some rest, loses no byte and holds up
// none for good.
func TestSteeredTransfer(t *testing.T) {
	p := newPair(t, nil)
	if p.x.congestion.fill == "" {
		t.Skip("this kernel has no bbr, or no cubic")
	}
	// The test is the one that switches, so the agent must not.
	f := p.open(agentapi.Params{Connections: 4, CongestionControl: p.x.congestion.long})
	s := p.x.session(f.id)
	eventually(t, "four connections", func() bool { return len(*s.conns.Load()) == 4 })
	done, stopped := make(chan struct{}), make(chan int)
	go func() {
		tick := time.NewTicker(3 * time.Millisecond)
		defer tick.Stop()
		controls := []string{p.x.congestion.fill, p.x.congestion.long, p.x.congestion.long}
		for i := 0; ; i++ {
			select {
			case <-done:
				s.out.use(*s.conns.Load(), 4)
				stopped <- i
				return
			case <-tick.C:
			}
			conns := *s.conns.Load()
			for _, c := range conns {
				if err := s.congestion.set(c, controls[i%3]); err != nil && s.live() {
					t.Errorf("switch %d: %v", i, err)
				}
			}
			s.out.use(conns, 1+i%4)
		}
	}()
	exchange(t, f, 128<<20, 16<<20)
	close(done)
	if n := <-stopped; n < 3 {
		t.Errorf("only %d switches during the transfer", n)
	}
}

func TestSteerable(t *testing.T) {
	for _, c := range []struct {
		name    string
		chosen  string
		kernel  congestion
		steered bool
	}{
		{"the agent's choice", "", congestion{long: "bbr", local: "cubic", fill: "cubic"}, true},
		{"the operator's choice", "bbr", congestion{long: "bbr", local: "cubic", fill: "cubic"}, false},
		{"no bbr", "", congestion{long: "cubic", local: "cubic"}, false},
		{"no cubic", "", congestion{long: "bbr", local: "reno"}, false},
	} {
		s := &session{agent: &Agent{congestion: c.kernel}, params: agentapi.Params{CongestionControl: c.chosen}}
		s.congestion.s = s
		if s.congestion.steerable() != c.steered {
			t.Errorf("%s: steered: %v", c.name, !c.steered)
		}
	}
}
