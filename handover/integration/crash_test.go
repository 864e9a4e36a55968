package integration

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/handover/plugin"
	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
)

// process is a world whose controller is the program itself, with its own store,
// so that it can be killed.
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

// launch starts the controller, also again after kill, on the same data folder.
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

// kill ends the controller as kill -9 does.
func (p *process) kill() {
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
		<-p.done
		p.cmd = nil
	}
}

// TestControllerKilled kills the controller in the middle of handovers. Wherever
// that catches it, the device's packets arrive while it is dead or soon after it
// has started again, its lease is the same, and so are rules and ledger.
func TestControllerKilled(t *testing.T) {
	p := newProcess(t, lab.MobilityOptions{Interfaces: 4})
	p.put("classes/open", plugin.ClassSpec{Policy: "saving", Trigger: "open"})
	radios := p.radios("dev1", 4)
	phones := newPhones(1, 20, 4)
	p.register("open", phones...)
	joinAll(t, radios, phones)
	if err := p.lab.WaitConnected(t.Context()); err != nil { // so that switches try each second
		t.Fatal(err)
	}
	first, at := phones[0], 0
	ip := first.ip
	rnd := rand.New(rand.NewPCG(5, 5))
	var wholes []time.Duration
	for n := range 6 {
		to := (at + 1 + rnd.IntN(3)) % 4
		if err := radios[to].tell(first.macs[to], first.reboot(first.macs[to])); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Duration(rnd.IntN(3000)) * time.Microsecond) // into the handover
		p.kill()
		old, next := place(at, first.macs[at]), place(to, first.macs[to])
		dead := p.delivered(radios, ip)
		began := time.Now()
		p.launch()
		p.eventually("packets come out where it was, or where it went", func() bool {
			where := p.deliveredWithin(radios, ip, 100*time.Millisecond)
			return slices.Equal(where, []string{old}) || slices.Equal(where, []string{next})
		})
		whole := time.Since(began)
		wholes = append(wholes, whole)
		p.eventually("it is served where it asks", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			return first.move(ctx, radios[to], first.macs[to]) == nil
		})
		served := time.Since(began)
		at = to
		p.servedAt(radios, ip, next)
		if l, ok := p.lease(first.id); !ok || l.IP != ip {
			t.Errorf("kill %d: the lease is %+v, it was %v", n, l, ip)
		}
		t.Logf("kill %d: while dead a packet came out at %v; whole %v after the start, serving after %v", n, dead, whole.Round(time.Millisecond), served.Round(time.Millisecond))
	}
	p.compareRules()
	p.leaked()
	for i, x := range phones[1:] {
		n := (i + 1) % 4
		p.servedAt(radios, x.ip, place(n, x.macs[n]))
	}
	slices.Sort(wholes)
	t.Logf("rules whole after the start: p50 %v, longest %v", wholes[len(wholes)/2], wholes[len(wholes)-1])
	if _, err := os.Stat(filepath.Join(p.dir, "data")); err != nil {
		t.Error(err)
	}
}
