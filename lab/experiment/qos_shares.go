package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/qos/classes"
	"github.com/sluice-net/sluice/services/qos/match"
)

const (
	// sharePort is the UDP port of the first flood, sharePayload the payload of its packets, and
	// shareFrame their size as links count it.
	sharePort    = 7000
	sharePayload = 1400
	shareFrame   = sharePayload + 14 + 20 + 8
	// shareLeast is the guaranteed rate of each of eight classes, in bit/s.
	shareLeast = 800_000
	// shareTolerance is the largest deviation of a rate from its bound, as a share of the bound.
	shareTolerance = 0.05
	// manyWithin bounds the time to provision manyClasses classes in a network of manySwitches
	// switches.
	manyWithin   = 5 * time.Second
	manyClasses  = 200
	manySwitches = 20
)

// shares holds the rates at which classes share a link that each of them could fill, in bit/s of
// frames, and the time to provision many classes.
type shares struct {
	eight    []float64
	pairs    [][2]float64 // of each two successive classes
	least    float64      // of a class with 3 Mbit/s guaranteed
	most     float64      // of a class that is limited to 2 Mbit/s
	many     time.Duration
	manyGone time.Duration
}

// flood sends from VM1 to ports of VM3, and returns the rate at which each flood arrives, in bit/s
// of frames.
func (r *controlRig) flood(ctx context.Context, rate float64, settle, over time.Duration, ports ...int) ([]float64, error) {
	var all []*testbed.Flooding
	defer func() {
		for _, f := range all {
			f.Stop()
		}
	}()
	for _, p := range ports {
		f, err := testbed.Flood{
			From: r.lab.Host("vm1"), To: r.lab.Host("vm3"), Dst: netip.AddrPortFrom(r.lab.Host("vm3").Addr(), uint16(p)), Rate: rate, Bytes: sharePayload,
		}.Start(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	if err := tasks.Sleep(ctx, settle); err != nil { // while queues fill
		return nil, err
	}
	before, began := make([]uint64, len(all)), time.Now()
	for i, f := range all {
		before[i], _ = f.Received()
	}
	if err := tasks.Sleep(ctx, over); err != nil {
		return nil, err
	}
	took := time.Since(began).Seconds()
	out := make([]float64, len(all))
	for i, f := range all {
		now, _ := f.Received()
		out[i] = 8 * shareFrame * float64(now-before[i]) / took
	}
	return out, nil
}

// shareClass returns a class of the packets of one flood.
func (r *controlRig) shareClass(name string, port, priority, least int) classes.ClassSpec {
	number := func(v int) match.Text { return match.Text(fmt.Sprint(v)) }
	return classes.ClassSpec{Name: name, Priority: number(priority), MinRate: number(least), Flows: []match.Flow{{
		IPv4Src: match.Text(r.lab.Host("vm1").Addr().String()), IPv4Dst: match.Text(r.lab.Host("vm3").Addr().String()), UDPDst: number(port),
	}}}
}

// share fills the links with eight classes, then with each two successive ones of them, and then
// with two classes of other rates.
func (r *controlRig) share(ctx context.Context, n *testbed.Network) (s shares, err error) {
	var ports []int
	for i := range 8 {
		ports = append(ports, sharePort+i)
		if err := n.Do(ctx, http.MethodPost, classesPath, r.shareClass(fmt.Sprint("class", i), sharePort+i, i, shareLeast), nil); err != nil {
			return s, err
		}
	}
	r.env.Step("eight classes")
	if s.eight, err = r.flood(ctx, 4e6, 2*time.Second, r.time, ports...); err != nil {
		return s, err
	}
	for i := range 7 {
		got, err := r.flood(ctx, 7.5e6, time.Second, r.time/2, sharePort+i, sharePort+i+1)
		if err != nil {
			return s, err
		}
		s.pairs = append(s.pairs, [2]float64(got))
	}
	for i := range 8 {
		if err := n.Do(ctx, http.MethodDelete, classesPath+"/class"+fmt.Sprint(i), nil, nil); err != nil {
			return s, err
		}
	}
	most := r.shareClass("most", sharePort+1, 0, 1_000_000)
	most.MaxRate = "2000000"
	for _, c := range []classes.ClassSpec{r.shareClass("least", sharePort, 6, 3_000_000), most} {
		if err := n.Do(ctx, http.MethodPost, classesPath, c, nil); err != nil {
			return s, err
		}
	}
	got, err := r.flood(ctx, 8e6, 2*time.Second, r.time, sharePort, sharePort+1, sharePort+2)
	if err != nil {
		return s, err
	}
	s.least, s.most = got[0], got[1]
	return s, nil
}

// classesPath is the path of the API's collection of classes.
const classesPath = "/api/v1/qos/classes"

// provision measures how long it takes to provision, and to withdraw, many classes that are
// requested at once, on three switches each.
func (e *Env) provision(ctx context.Context, s *shares) error {
	e.Step("%d classes on %d switches", manyClasses, manySwitches)
	return e.withLab(ctx, lab.Line("qosmany", manySwitches, delayline.Params{}), func(ctx context.Context, l *lab.Lab) (err error) {
		stop, err := testbed.StartClassifiers(ctx, l, e.Binary, e.Dir)
		if err != nil {
			return err
		}
		defer stop()
		n, err := testbed.DeployNetwork(ctx, testbed.NetworkOptions{
			Lab: l, Binary: e.Binary, LogDir: e.Dir, Interval: time.Second, Rate: func(lab.Link) float64 { return controlRate }, Queues: true,
		})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, n.Close()) }()
		host := func(i int) *lab.LiveHost { return l.Host(fmt.Sprint("h", i)) }
		for i := 1; i < manySwitches; i++ { // so that their places are known
			if err := awaitReachable(ctx, host(i), host(i).Addr(), host(i+1).Addr()); err != nil {
				return err
			}
		}
		began := time.Now()
		if err := atOnce(manyClasses, func(i int) error {
			from := i%(manySwitches-2) + 1
			return n.Do(ctx, http.MethodPost, classesPath, classes.ClassSpec{
				Name: fmt.Sprint("c", i), Priority: match.Text(fmt.Sprint(i % 8)), MinRate: "100000", Flows: []match.Flow{{
					IPv4Src: match.Text(host(from).Addr().String()), IPv4Dst: match.Text(host(from + 2).Addr().String()), UDPDst: match.Text(fmt.Sprint(sharePort + i)),
				}},
			}, nil)
		}); err != nil {
			return err
		}
		s.many, began = time.Since(began), time.Now()
		err = atOnce(manyClasses, func(i int) error {
			return n.Do(ctx, http.MethodDelete, fmt.Sprintf("%s/c%d", classesPath, i), nil, nil)
		})
		s.manyGone = time.Since(began)
		return err
	})
}

// atOnce calls f n times concurrently.
func atOnce(n int, f func(int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// report adds the table and the claims.
func (s shares) report(r *Result) {
	t := Table{Title: "What arrives of classes that all send more than there is, in kbit/s of frames", Columns: []string{"class", "guaranteed", "of eight", "beside the next", "the next"}}
	ordered, held := true, true
	for i, v := range s.eight {
		beside := []any{"", ""}
		if i < len(s.pairs) {
			beside = []any{kbit(s.pairs[i][0]), kbit(s.pairs[i][1])}
		}
		t.Add(append([]any{i, kbit(shareLeast), kbit(v)}, beside...)...)
		held = held && v >= (1-shareTolerance)*shareLeast
		ordered = ordered && (i == 0 || v <= (1+shareTolerance)*s.eight[i-1])
	}
	r.Tables = append(r.Tables, t)
	r.Claim(held, "each of eight classes has 95 % of its guaranteed 0.8 Mbit/s at least", "the least has %s kbit/s", kbit(slices.Min(s.eight)))
	r.Claim(ordered && s.eight[0] >= 3e6, "no class has more than that before it by more than 5 %, and the first, which what is left goes to, has 3 Mbit/s at least", "%s", kbits(s.eight))
	first := !slices.ContainsFunc(s.pairs, func(p [2]float64) bool { return p[0] < 2*p[1] || p[1] < (1-shareTolerance)*shareLeast })
	r.Claim(first, "of two classes that send 7.5 Mbit/s each, the first has at least twice what the second has, and the second its guarantee", "%s", pairText(s.pairs))
	r.Claim(s.least >= (1-shareTolerance)*3e6, "a class of the last but one priority has 95 % of its guaranteed 3 Mbit/s at least", "%s kbit/s", kbit(s.least))
	r.Claim(s.most <= (1+shareTolerance)*2e6 && s.most >= (1-shareTolerance)*2e6, "a class that may have 2 Mbit/s has them within 5 %", "%s kbit/s", kbit(s.most))
	r.Claim(s.many <= manyWithin, fmt.Sprintf("%d classes that are requested at once, of three of %d switches each, are there within %v", manyClasses, manySwitches, manyWithin),
		"%.2f s; withdrawn in %.2f s", s.many.Seconds(), s.manyGone.Seconds())
}

func kbit(v float64) string { return fmt.Sprintf("%.0f", v/1000) }

func kbits(all []float64) string {
	var out []string
	for _, v := range all {
		out = append(out, kbit(v))
	}
	return strings.Join(out, ", ") + " kbit/s"
}

func pairText(pairs [][2]float64) string {
	var out []string
	for _, p := range pairs {
		out = append(out, kbit(p[0])+" and "+kbit(p[1]))
	}
	return strings.Join(out, ", ") + " kbit/s"
}
