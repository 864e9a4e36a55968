package testbed

import (
	"math"
	"net"
	"testing"
	"time"
)

func TestPullOverLoopback(t *testing.T) {
	p, err := StartPull(t.Context(), PullOptions{Client: localhost{}, Server: localhost{}, Listen: loopback, Rate: 80e6})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return p.Bytes() > 20e6 })
	l := p.Stop()
	r := l.All()
	if l.Err != nil || l.Resets != 0 || l.Wrong {
		t.Errorf("a download over loopback: %+v", l)
	}
	if r.Intervals == 0 || r.Median <= 0 {
		t.Errorf("no rate was measured: %+v", r)
	}
}

// TestPullReset checks that a connection that is reset is reported as such, and not as a download
// that was stopped.
func TestPullReset(t *testing.T) {
	p, err := StartPull(t.Context(), PullOptions{Client: localhost{}, Server: localhost{}, Listen: loopback, Rate: 8e6})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return p.Bytes() > 0 })
	if err := p.server.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	p.server.Close()
	p.running.Wait()
	if l := p.Stop(); l.Resets != 1 || l.Err == nil {
		t.Errorf("resets %d, error %v", l.Resets, l.Err)
	}
}

func TestPullFindsMisplacedBytes(t *testing.T) {
	all := pattern()
	if !matches(all[10:1000], 10) || !matches(append(append([]byte{}, all[patternSize-5:]...), all[:7]...), patternSize-5) {
		t.Error("what is in its place is not recognised")
	}
	if matches(all[11:1000], 10) {
		t.Error("a byte that is missing is not noticed")
	}
}

func TestPullReport(t *testing.T) {
	began := time.Now()
	l := &PullLog{began: began, ended: began.Add(time.Second), intervals: []int64{100, 100, 100, 0, 40, 60, 100, 100, 100, 100}}
	l.silences = []silence{{began.Add(250 * time.Millisecond), began.Add(410 * time.Millisecond)}}
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	r := l.Between(at(150), at(1000))
	want := PullReport{Intervals: 8, Median: 8000, Least: 0, Dips: 2, Silence: 160 * time.Millisecond}
	if r != want {
		t.Errorf("report %+v, want %+v", r, want)
	}
	if r := l.Between(at(600), at(900)); r.Dips != 0 || r.Silence != 0 || math.Abs(r.Least-8000) > 1e-9 {
		t.Errorf("after the dip: %+v", r)
	}
	if r := l.Between(at(950), at(960)); r.Intervals != 0 {
		t.Errorf("a span without a whole interval: %+v", r)
	}
}

func TestPullToNobody(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer closed.Close()
	taken := closed.Addr().(*net.TCPAddr).AddrPort()
	if p, err := StartPull(t.Context(), PullOptions{Client: localhost{}, Server: localhost{}, Listen: taken}); err == nil {
		p.Stop()
		t.Error("a server listens where somebody else does")
	}
}
