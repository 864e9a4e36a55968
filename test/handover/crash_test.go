package handover

import (
	"context"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/pause"
	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/services/handover"
)

// process is a world whose controller is the program itself, with its own store, so that it can be
// killed.
type process struct {
	*world
	binary string
	cmd    *exec.Cmd
	done   chan error
}

func newProcess(t *testing.T, o lab.MobilityOptions) *process {
	t.Helper()
	p := &process{world: makeWorld(t, o), binary: selfbuild.Binary(t)}
	t.Cleanup(p.kill)
	p.launch()
	p.dial("http://"+apiAddress, p.lab.Control().DialContext)
	t.Cleanup(p.rest.Close)
	p.ready()
	p.put("pools/"+pool, p.poolSpec())
	return p
}

// launch starts the controller, also after kill, on the same data directory.
func (p *process) launch() {
	p.t.Helper()
	cmd := p.lab.Control().Command(context.Background(), p.binary, "controller", "--config", p.configFile(apiAddress))
	cmd.Stdout, cmd.Stderr = p.log, p.log
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	p.cmd, p.done = cmd, done
}

// kill kills the controller.
func (p *process) kill() {
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
		<-p.done
		p.cmd = nil
	}
}

// kills is how often TestControllerKilled kills the controller.
const kills = 5

// TestControllerKilled kills the controller in the middle of handovers. Whatever it was doing, the
// device's packets continue to arrive at one of its two places. After the next start the switches
// have exactly the rules of one place again, and its lease is the same.
func TestControllerKilled(t *testing.T) {
	t.Parallel()
	p := newProcess(t, lab.MobilityOptions{Interfaces: 4})
	p.put("classes/open", handover.ClassSpec{Policy: "saving", Trigger: "open"})
	radios := p.radios("dev1", 4)
	phones := newPhones(1, 10, 4)
	p.register("open", phones...)
	joinAll(t, radios, phones)
	if err := p.lab.WaitConnected(t.Context()); err != nil { // so that switches try each second
		t.Fatal(err)
	}
	first, at := phones[0], 0
	ip := first.ip
	p.servedAt(radios, ip, place(at, first.macs[at])) // the gateway has asked for its MAC address: later nobody could answer
	rnd := rand.New(rand.NewPCG(5, 5))
	for n := range kills {
		to := (at + 1 + rnd.IntN(3)) % 4
		if err := radios[to].tell(first.macs[to], first.reboot(first.macs[to])); err != nil {
			t.Fatal(err)
		}
		pause.For(time.Duration(rnd.IntN(3000))*time.Microsecond, "a random moment of the handover")
		p.kill()
		places := []string{place(at, first.macs[at]), place(to, first.macs[to])}
		one := func(where []string) bool { return len(where) == 1 && slices.Contains(places, where[0]) }
		if dead := p.delivered(radios, ip); !one(dead) {
			t.Errorf("kill %d: while the controller is dead a packet comes out at %v, want one of %v", n, dead, places)
		}
		p.launch()
		p.whole()
		if where := p.delivered(radios, ip); !one(where) {
			t.Errorf("kill %d: a packet comes out at %v, want one of %v", n, where, places)
		}
		if l, ok := p.lease(first.id); !ok || l.IP != ip {
			t.Errorf("kill %d: the lease is %+v, it was %v", n, l, ip)
		}
		p.eventually("it is served where it asks", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return first.move(ctx, radios[to], first.macs[to]) == nil
		})
		at = to
		p.servedAt(radios, ip, place(to, first.macs[to]))
	}
	p.compareRules()
	p.leaked()
	for i, x := range phones[1:] {
		n := (i + 1) % 4
		p.servedAt(radios, x.ip, place(n, x.macs[n]))
	}
	if _, err := os.Stat(filepath.Join(p.dir, "data")); err != nil {
		t.Error(err)
	}
}

// whole waits until the controller is ready and the switches have exactly the rules of its ledger.
func (p *process) whole() {
	p.t.Helper()
	p.eventually("rules are whole", func() bool {
		var st struct{ Ready bool }
		if p.do(http.MethodGet, "status", nil, &st) != nil || !st.Ready {
			return false
		}
		_, wrong := p.differences()
		return len(wrong) == 0
	})
}
