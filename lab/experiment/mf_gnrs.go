package experiment

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

const (
	// gnrsAway is the one-way delay of the name service: DMap's mean look-up takes 49.1 ms with
	// five replicas.
	gnrsAway = 24550 * time.Microsecond
	// gnrsChunk is the size of chunks in bytes, and gnrsUnderway the number of chunks that may be
	// sent before the first of them is acknowledged.
	gnrsChunk, gnrsUnderway = 1_000_000, 8
	// gnrsFirst bounds the rate with 80 % look-ups of names that nobody has asked for, as a share
	// of the rate with cached answers, as published. gnrsAgain bounds the rate with cached answers
	// as a share of the rate without look-ups.
	gnrsFirst, gnrsAgain = 500.0 / 800, 0.95
	// gnrsMost is the largest share of look-ups in percent. It fits a host's limit of 64
	// applications.
	gnrsMost = 80
)

func mfGNRS() Experiment {
	return Experiment{
		Name:     "mf-gnrs",
		Title:    "Chunks to names that have to be looked up, far from the name service",
		Question: "What do look-ups cost a stream of chunks, by the share of chunks that need one, the first time and when the answers are kept?",
		Source:   "MobilityFirst thesis 2013, figure 4.5: 80 % look-ups cost 300 of 800 Mbit/s; delays of DMap (Vu et al., ICDCS 2012)",
		Varies:   []string{"share"},
		Run:      runMFGNRS,
	}
}

func runMFGNRS(ctx context.Context, env *Env) (*Result, error) {
	all := []int{0, 20, 40, 60, gnrsMost}
	shares, err := chosenOr(env.Only, "share", all, pick(env.Scale, []int{0, gnrsMost}, all, all), strconv.Itoa)
	if err != nil {
		return nil, err
	}
	raw, err := env.CSV("gnrs", "share", "answers", "run", "bits_per_second")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	top := lab.Topology{Name: "mfgnrs", Switches: []lab.Switch{{Name: "s1"}, {Name: "s2"}}, Hosts: []lab.Host{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
	for _, ends := range [][2]string{{"a", "s1"}, {"s1", "s2"}, {"b", "s2"}} {
		top.Links = append(top.Links, lab.Both(ends[0], ends[1], delayline.Params{}))
	}
	top.Links = append(top.Links, lab.Both("c", "s1", delayline.Params{Delay: gnrsAway}))
	r := &Result{Network: fmt.Sprintf("two hosts that find each other by UDP, two switches with a controller, and a name service %v away; no other link is shaped, and all of it shares this machine's processors", gnrsAway)}
	err = env.withLab(ctx, top, func(ctx context.Context, l *lab.Lab) (err error) {
		d, err := testbed.Deploy(ctx, testbed.Options{Lab: l, Binary: env.Binary, LogDir: env.Dir})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		rig := &gnrsRig{env: env, lab: l, chunks: pick(env.Scale, 40, 70, 70), repeats: pick(env.Scale, 1, 3, 5), rates: map[string][]float64{}}
		defer rig.stop()
		return rig.run(ctx, shares, raw, r)
	})
	return r, err
}

// gnrsRig is two hosts and a name service.
type gnrsRig struct {
	env             *Env
	lab             *lab.Lab
	daemons         []*testbed.Daemon
	chunks, repeats int
	rates           map[string][]float64
	from            *hostapi.Client
	work            *tasks.Group
	known           frame.GUID // a name that has been looked up
}

func (g *gnrsRig) stop() {
	if g.work != nil {
		g.work.Stop()
	}
	for _, d := range g.daemons {
		d.Stop()
	}
}

// gnrsWay describes a share of chunks whose names are looked up, for the first time or again.
func gnrsWay(share int, again bool) string {
	if again {
		return fmt.Sprintf("%d %% look-ups, answers kept", share)
	}
	return fmt.Sprintf("%d %% look-ups, of names not asked for before", share)
}

func (g *gnrsRig) run(ctx context.Context, shares []int, raw *CSV, r *Result) error {
	if err := g.start(ctx); err != nil {
		return err
	}
	g.env.Steps(len(shares) * g.repeats)
	for run := range g.repeats {
		for _, share := range shares {
			g.env.Step("%d %% look-ups", share)
			names, detach, err := g.attach(ctx, "b", g.chunks*share/100)
			if err != nil {
				return err
			}
			for _, again := range []bool{false, true} {
				rate, err := g.send(ctx, share, names)
				if err != nil {
					return err
				}
				way := gnrsWay(share, again)
				g.rates[way] = append(g.rates[way], rate)
				if err := raw.Row(share, map[bool]string{false: "first", true: "kept"}[again], run+1, rate); err != nil {
					return err
				}
			}
			detach()
		}
	}
	g.report(shares, r)
	return nil
}

// start starts the service and the hosts.
func (g *gnrsRig) start(ctx context.Context) error {
	service := g.lab.Host("c").Addr().String() + ":5001"
	begin := func(host string, args ...string) error {
		d, err := testbed.StartDaemon(ctx, g.lab.Host(host), filepath.Join(g.env.Dir, args[0]+"-"+host+".log"), g.env.Binary, append([]string{"mf"}, args...)...)
		if err == nil {
			g.daemons = append(g.daemons, d)
		}
		return err
	}
	err := begin("c", "gnrs", "--listen", service, "--dir", filepath.Join(g.env.Dir, "names"), "--new-names", "1000")
	for _, host := range []string{"a", "b"} {
		err = errors.Join(err, begin(host, "host", "--socket", g.socket(host), "--udp", "5028", "--names", service))
	}
	if err != nil {
		return err
	}
	g.work = tasks.New()
	if g.from, _, err = g.open(ctx, "a"); err != nil {
		return err
	}
	to, _, err := g.attach(ctx, "b", 1)
	if err != nil {
		return err
	}
	g.known = to[0]
	_, err = g.send(ctx, 0, nil) // so that the answer is cached from then on
	return err
}

func (g *gnrsRig) socket(host string) string { return filepath.Join(g.env.Dir, host+".sock") }

// open attaches a new name at a host.
func (g *gnrsRig) open(ctx context.Context, host string) (c *hostapi.Client, name frame.GUID, err error) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, name, fmt.Errorf("making a name: %w", err)
	}
	err = testbed.Poll(ctx, "the host of names", func() (err error) { c, err = hostapi.Open(ctx, g.socket(host), key); return err })
	return c, record.NameOfOwner(key), err
}

// attach attaches n new names at a host, which receive chunks until detach is called, and waits
// until the name service has them.
func (g *gnrsRig) attach(ctx context.Context, host string, n int) (names []frame.GUID, detach func(), err error) {
	var all []*hostapi.Client
	detach = func() {
		for _, c := range all {
			_ = c.Close()
		}
	}
	for range n {
		c, name, err := g.open(ctx, host)
		if err != nil {
			detach()
			return nil, nil, err
		}
		all, names = append(all, c), append(names, name)
		g.work.Start(func(ctx context.Context) {
			for {
				x, err := c.Receive(ctx)
				if err == nil {
					err = c.Take(x)
				}
				if err != nil {
					return // the name was detached
				}
			}
		})
	}
	for _, name := range names {
		err := g.env.awaitName(ctx, g.lab.Host("b"), g.lab.Host("c").Addr().String()+":5001", name.String())
		if err != nil {
			detach()
			return nil, nil, err
		}
	}
	return names, detach, nil
}

// send sends chunks, and returns their rate. A share of them goes to names that are each used once,
// spread among the others.
func (g *gnrsRig) send(ctx context.Context, share int, names []frame.GUID) (bitsPerSecond float64, err error) {
	payload := make([]byte, gnrsChunk)
	room := make(chan struct{}, gnrsUnderway)
	var sent sync.WaitGroup
	var mu sync.Mutex
	began := time.Now()
	for i := range g.chunks {
		to := g.known
		if (i+1)*share/100 > i*share/100 {
			to = names[0]
			names = names[1:]
		}
		room <- struct{}{}
		sent.Add(1)
		failed := g.from.Send(ctx, to, 0, payload, func(lost error) {
			mu.Lock()
			err = errors.Join(err, lost)
			mu.Unlock()
			<-room
			sent.Done()
		})
		if failed != nil {
			return 0, failed
		}
	}
	sent.Wait()
	mu.Lock()
	defer mu.Unlock()
	return float64(g.chunks) * gnrsChunk * 8 / time.Since(began).Seconds(), err
}

func (g *gnrsRig) report(shares []int, r *Result) {
	t := Table{Title: "Chunks from application to application: means with 95 % intervals", Columns: []string{"look-ups", "Mbit/s", "of what goes without"}}
	base := mean(g.rates[gnrsWay(0, true)])
	for _, share := range shares {
		for _, again := range []bool{false, true} {
			way := gnrsWay(share, again)
			rate := mean(g.rates[way])
			part := "-"
			if base > 0 {
				part = fmt.Sprintf("%.2f", rate/base)
			}
			t.Add(way, meanText(g.rates[way], 1e-6, 0), part)
		}
	}
	if kept := mean(g.rates[gnrsWay(gnrsMost, true)]); base > 0 && kept > 0 {
		first := mean(g.rates[gnrsWay(gnrsMost, false)])
		r.Claim(first >= gnrsFirst*kept, fmt.Sprintf("%s: at least %.3g of what goes when the answers are kept", gnrsWay(gnrsMost, false), gnrsFirst), "%.2f", first/kept)
		r.Claim(kept >= gnrsAgain*base, fmt.Sprintf("%s: at least %.3g of what goes without", gnrsWay(gnrsMost, true), gnrsAgain), "%.2f", kept/base)
	}
	before := Table{Title: "Published: figure 4.5", Columns: []string{"look-ups", "Mbit/s"}}
	before.Add("0 %", 800)
	before.Add("80 %", 500)
	r.Tables = append(r.Tables, t, before)
	r.Note("Chunks of %d bytes, %d of them on their way at one time. A share of them goes each to a name of its own, which has to be looked up, and found by asking its host for a way to it; all others to one name that is known. Then the same is sent once more to the same names. Chunks to one name go one after the other, and those to several beside each other, which is why look-ups may seem to make it faster. The receiver's host is by the sender's, the name service as far as DMap's mean look-up with five replicas.", gnrsChunk, gnrsUnderway)
}
