package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/sos"
)

func sosStart() Experiment {
	return Experiment{
		Name:     "sos-start",
		Title:    "SOS from the first byte: how near a transfer of some megabytes comes to what the link allows",
		Question: "How long does a transfer take that is over before a connection has found out what the path carries, and what does it push into the path's queue?",
		Varies:   []string{"loss", "size", "direction", "way"},
		Run:      runStart,
	}
}

// startLine is the link of the demo.
var startLine = line{Rate: 300e6, RTT: 150 * time.Millisecond, MTU: 1500}

const (
	startPort = 8080
	// startPrime is how many megabytes are carried before the path counts as known.
	startPrime = 50
	// plainRate is the declared capacity of the lab's plain cables.
	plainRate = 1e10
	wayProxy  = "haproxy BBR 128 MB"
	// These are the ways of SOS: by agents that know nothing of the path, by agents whose
	// controller knows the link's capacity, by the same without connections before the transfer, and
	// by agents that have carried a transfer before; in two further ways the link had twice or half its rate during that transfer, and in the last two
	// its rate is halved or doubled in the middle of the transfer that is measured.
	wayUnknownPath, wayKnownLink, wayKnownPath = "SOS (unknown path)", "SOS (known link)", "SOS (known path)"
	wayNoConnections                           = "SOS (known link without connections)"
	wayTwice, wayHalf                          = "SOS (twice the rate known)", "SOS (half the rate known)"
	wayHalved, wayDoubled                      = "SOS (rate halved meanwhile)", "SOS (rate doubled meanwhile)"

	// shortMegabytes is the largest file that is carried without connections before.
	shortMegabytes = 5

	directionDown = "down"
	directionUp   = "up"
)

// startCell is one combination of the parameters.
type startCell struct {
	loss      float64
	direction string
	megabytes int
	way       string
}

func (c startCell) String() string {
	return fmt.Sprintf("%d MB %s by %s, %s %% loss", c.megabytes, c.direction, c.way, percent(c.loss))
}

// startRun holds the measurements of one transfer: its time, and what happened to packets in its
// direction.
type startRun struct {
	took time.Duration
	crossing
}

type startPlan struct {
	losses     []float64
	megabytes  []int
	directions []string
	ways       []string
	times      int
}

func planStart(env *Env) (p startPlan, err error) {
	text := func(s string) string { return s }
	var errs [4]error
	losses, sizes := []float64{startLossOfDemo, 5e-3}, []int{1, 5, 50, 100, 500}
	p.losses, errs[0] = chosenOr(env.Only, "loss", losses, pick(env.Scale, losses[:1], losses, losses), percent)
	p.megabytes, errs[1] = chosenOr(env.Only, "size", sizes, pick(env.Scale, sizes[:2], sizes, sizes), strconv.Itoa)
	directions := []string{directionDown, directionUp}
	p.directions, errs[2] = chosenOr(env.Only, "direction", directions, pick(env.Scale, directions[:1], directions, directions), text)
	p.ways, errs[3] = chosen(env.Only, "way", []string{wayDirect, wayProxy, wayUnknownPath, wayKnownLink, wayNoConnections, wayKnownPath, wayTwice, wayHalf, wayHalved, wayDoubled}, text)
	p.times = pick(env.Scale, 1, 5, 5)
	if err := errors.Join(errs[:]...); err != nil {
		return p, err
	}
	cells := p.cells()
	if len(cells) == 0 {
		return p, fmt.Errorf("nothing is to be measured: the link's rate changes only during transfers of %v MB (choose size=%d), and %q is measured up to %d MB", changedSizes, changedSizes[0], wayNoConnections, shortMegabytes)
	}
	p.ways = slices.DeleteFunc(p.ways, func(way string) bool {
		return !slices.ContainsFunc(cells, func(c startCell) bool { return c.way == way })
	})
	return p, nil
}

// cells returns all combinations in the order in which they are measured.
func (p startPlan) cells() (all []startCell) {
	for _, loss := range p.losses {
		for _, direction := range p.directions {
			for _, size := range p.megabytes {
				for _, way := range p.ways {
					if c := (startCell{loss, direction, size, way}); c.isMeasured() {
						all = append(all, c)
					}
				}
			}
		}
	}
	return all
}

func runStart(ctx context.Context, env *Env) (*Result, error) {
	p, err := planStart(env)
	if err != nil {
		return nil, err
	}
	raw, err := env.CSV("transfers", "loss", "direction", "megabytes", "way", "seconds", "ideal_seconds", "packets_dropped", "packets_delivered", "mean_queueing_seconds", "lab_late_seconds")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	env.Steps(len(p.cells()))
	runs := map[startCell][]startRun{}
	keep := func(c startCell, r startRun) error {
		env.Logf("%.2f s, %d packets dropped and %d delivered after %v in the queue, lab %v late", r.took.Seconds(), r.dropped, r.delivered, r.queued.Round(time.Millisecond/10), r.late.Round(time.Millisecond))
		runs[c] = append(runs[c], r)
		return raw.Row(c.loss, c.direction, c.megabytes, c.way, r.took, c.ideal(), r.dropped, r.delivered, r.queued, r.late)
	}
	for _, told := range []bool{false, true} {
		part := p
		part.ways = slices.DeleteFunc(slices.Clone(p.ways), func(way string) bool { return (way == wayKnownLink || way == wayNoConnections) != told })
		if len(part.cells()) == 0 {
			continue
		}
		network := func(l *lab.Lab) (string, error) {
			if !told {
				return "", nil
			}
			return testbed.DeclareLinks(l, func(k lab.Link) float64 { return cmp.Or(k.AtoB.Rate, plainRate) })
		}
		err := env.withSiteOf(ctx, addProxies(twoSites("start", startLine, 1), startLine.MTU), network, func(ctx context.Context, s *site) error {
			return part.run(ctx, env, s, keep)
		})
		if err != nil {
			return nil, err
		}
	}
	return startResult(p, runs), nil
}

// run makes the plan's transfers at one site.
func (p startPlan) run(ctx context.Context, env *Env, s *site, keep func(startCell, startRun) error) error {
	rig, err := newStartRig(ctx, env, s, p.megabytes)
	if err != nil {
		return err
	}
	defer rig.close()
	for _, c := range p.cells() {
		env.Step("%v", c)
		if err := rig.cell(ctx, c, p.times, keep); err != nil {
			return fmt.Errorf("%v: %w", c, err)
		}
	}
	return nil
}

// cell makes one combination's transfers.
func (rig *startRig) cell(ctx context.Context, c startCell, times int, keep func(startCell, startRun) error) error {
	if _, ok := ratesOf[c.way]; ok {
		return rig.otherRates(ctx, c, times, keep)
	}
	if err := rig.setRate(ctx, c, startLine.Rate); err != nil {
		return err
	}
	if c.way == wayKnownPath { // a transfer that carries little does not show what the path can carry
		prime := c
		prime.megabytes = startPrime
		if _, err := rig.transfer(ctx, prime); err != nil {
			return err
		}
	}
	return rig.measure(ctx, c, times, keep)
}

// measure makes a number of transfers of one combination, and passes their measurements to keep.
func (rig *startRig) measure(ctx context.Context, c startCell, times int, keep func(startCell, startRun) error) error {
	for range times {
		r, err := rig.transfer(ctx, c)
		if err != nil {
			return err
		}
		if err := keep(c, r); err != nil {
			return err
		}
	}
	return nil
}

// startRig is a site with a web server that is reached directly, by agents, and by proxies.
type startRig struct {
	*site
	web         webRoot
	stopProxies func()
}

func newStartRig(ctx context.Context, env *Env, s *site, megabytes []int) (*startRig, error) {
	web, err := newWebRoot()
	if err != nil {
		return nil, err
	}
	rig := &startRig{site: s, web: web}
	if err := rig.begin(ctx, env, megabytes); err != nil {
		rig.close()
		return nil, err
	}
	return rig, nil
}

func (rig *startRig) begin(ctx context.Context, env *Env, megabytes []int) (err error) {
	for _, size := range append([]int{startPrime}, megabytes...) {
		if err := os.WriteFile(rig.file(size), make([]byte, size*1e6), 0o644); err != nil {
			return err
		}
	}
	for _, port := range []uint16{webPort, startPort} {
		if err := rig.web.serve(ctx, env, rig.site, "server", port); err != nil {
			return err
		}
	}
	server := rig.lab.Host("server").Addr()
	if rig.stopProxies, err = (peer{proxies: "bb"}).startProxies(ctx, env, rig.site, netip.AddrPortFrom(server, startPort)); err != nil {
		return err
	}
	if err := rig.NearByHops(ctx); err != nil {
		return err
	}
	_, err = rig.Whitelist(ctx, server, webPort, sos.Tuning{})
	return err
}

func (rig *startRig) file(megabytes int) string {
	return filepath.Join(rig.web.root, strconv.Itoa(megabytes))
}

func (rig *startRig) close() {
	if rig.stopProxies != nil {
		rig.stopProxies()
	}
	rig.web.close()
}

// url returns the URL of a cell's file.
func (rig *startRig) url(c startCell) string {
	return fmt.Sprintf("http://%v/%d", rig.at(c.way), c.megabytes)
}

// at returns the address to which the client connects in a way.
func (rig *startRig) at(way string) netip.AddrPort {
	server := rig.lab.Host("server").Addr()
	switch way {
	case wayDirect:
		return netip.AddrPortFrom(server, startPort)
	case wayProxy:
		return netip.AddrPortFrom(rig.lab.Host("bbx").Addr(), iperfPort)
	}
	return netip.AddrPortFrom(server, webPort)
}

// transfer makes one transfer in the cell's way. If the agents must not know the path, transfer
// restarts them before.
func (rig *startRig) transfer(ctx context.Context, c startCell) (r startRun, err error) {
	switch c.way {
	case wayUnknownPath, wayKnownLink:
		err = rig.restartAgents(ctx)
	case wayNoConnections:
		if err = rig.WarmPeers(ctx, 0); err == nil {
			defer func() { err = errors.Join(err, rig.WarmPeers(ctx, sos.DefaultConfig().WarmPeers)) }()
			err = rig.restartAgentsOnly(ctx)
		}
	}
	if err != nil {
		return r, err
	}
	upwards := c.direction == directionUp
	r.crossing, err = rig.crossed(ctx, upwards, func() error {
		if upwards {
			r.took, err = testbed.Upload(ctx, rig.lab.Host("client"), rig.file(c.megabytes), fmt.Sprintf("http://%v/in/%d", rig.at(c.way), c.megabytes))
			return err
		}
		d, err := testbed.Curl(ctx, rig.lab.Host("client"), rig.url(c), filepath.Join(rig.web.root, "got"), nil)
		r.took = d.Total
		return err
	})
	return r, err
}

// restartAgents restarts the agents, so that they know no path, and waits until they have opened
// connections to each other, as agents do that have been running for some seconds.
func (rig *startRig) restartAgents(ctx context.Context) error {
	begun := time.Now()
	if err := rig.restartAgentsOnly(ctx); err != nil {
		return err
	}
	return testbed.AwaitWarm(ctx, rig.Deployment, "x1", "y1", begun)
}

// restartAgentsOnly restarts the agents.
func (rig *startRig) restartAgentsOnly(ctx context.Context) error {
	for _, host := range []string{"x1", "y1"} {
		if err := testbed.RestartAgent(ctx, rig.Deployment, host); err != nil {
			return err
		}
	}
	return nil
}
