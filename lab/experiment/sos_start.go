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
	"github.com/sluice-net/sluice/lab/delayline"
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
	// controller knows the link's capacity, and by agents that have carried a transfer before; in
	// two further ways the link had twice or half its rate during that transfer.
	wayUnknownPath, wayKnownLink, wayKnownPath = "SOS (unknown path)", "SOS (known link)", "SOS (known path)"
	wayTwice, wayHalf                          = "SOS (twice the rate known)", "SOS (half the rate known)"

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

// ideal returns the time that the link permits: two round trips, and the bytes at its rate.
func (c startCell) ideal() time.Duration {
	return 2*startLine.RTT + time.Duration(float64(c.megabytes)*8e6/c.rate()*float64(time.Second))
}

// startRun holds the measurements of one transfer.
type startRun struct {
	took            time.Duration
	dropped, passed uint64        // packets that the link's queue has dropped, and that have crossed the link
	late            time.Duration // largest lateness of the lab so far
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
	losses, sizes := []float64{5e-4, 5e-3}, []int{1, 5, 50, 500}
	p.losses, errs[0] = chosenOr(env.Only, "loss", losses, pick(env.Scale, losses[:1], losses, losses), percent)
	p.megabytes, errs[1] = chosenOr(env.Only, "size", sizes, pick(env.Scale, sizes[:2], sizes, sizes), strconv.Itoa)
	directions := []string{directionDown, directionUp}
	p.directions, errs[2] = chosenOr(env.Only, "direction", directions, pick(env.Scale, directions[:1], directions, directions), text)
	p.ways, errs[3] = chosen(env.Only, "way", []string{wayDirect, wayProxy, wayUnknownPath, wayKnownLink, wayKnownPath, wayTwice, wayHalf}, text)
	p.times = pick(env.Scale, 1, 5, 5)
	return p, errors.Join(errs[:]...)
}

func runStart(ctx context.Context, env *Env) (*Result, error) {
	p, err := planStart(env)
	if err != nil {
		return nil, err
	}
	raw, err := env.CSV("transfers", "loss", "direction", "megabytes", "way", "seconds", "ideal_seconds", "packets_dropped", "packets_delivered", "lab_late_seconds")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	env.Steps(len(p.losses) * len(p.directions) * len(p.megabytes) * len(p.ways))
	runs := map[startCell][]startRun{}
	keep := func(c startCell, r startRun) error {
		env.Logf("%.2f s, %d packets dropped of %d, lab %v late", r.took.Seconds(), r.dropped, r.passed, r.late.Round(time.Millisecond))
		runs[c] = append(runs[c], r)
		return raw.Row(c.loss, c.direction, c.megabytes, c.way, r.took, c.ideal(), r.dropped, r.passed, r.late)
	}
	for _, told := range []bool{false, true} {
		part := p
		part.ways = slices.DeleteFunc(slices.Clone(p.ways), func(way string) bool { return (way == wayKnownLink) != told })
		if len(part.ways) == 0 {
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
	l := startLine
	for _, l.Loss = range p.losses {
		if err := s.lab.SetLinkParams(ctx, "wan", l.params()); err != nil {
			return err
		}
		for _, direction := range p.directions {
			for _, size := range p.megabytes {
				for _, way := range p.ways {
					c := startCell{l.Loss, direction, size, way}
					env.Step("%v", c)
					if err := rig.cell(ctx, c, p.times, keep); err != nil {
						return fmt.Errorf("%v: %w", c, err)
					}
				}
			}
		}
	}
	return nil
}

// cell makes one combination's transfers.
func (rig *startRig) cell(ctx context.Context, c startCell, times int, keep func(startCell, startRun) error) error {
	if _, ok := wrongRates[c.way]; ok {
		return rig.wrong(ctx, c, times, keep)
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
	if c.way == wayUnknownPath || c.way == wayKnownLink {
		if err := rig.restartAgents(ctx); err != nil {
			return r, err
		}
	}
	before, err := rig.lab.Link("wan").Stats(ctx)
	if err != nil {
		return r, err
	}
	if c.direction == directionUp {
		r.took, err = testbed.Upload(ctx, rig.lab.Host("client"), rig.file(c.megabytes), fmt.Sprintf("http://%v/in/%d", rig.at(c.way), c.megabytes))
	} else {
		var d testbed.Download
		d, err = testbed.Curl(ctx, rig.lab.Host("client"), rig.url(c), filepath.Join(rig.web.root, "got"), nil)
		r.took = d.Total
	}
	if err != nil {
		return r, err
	}
	after, err := rig.lab.Link("wan").Stats(ctx)
	if err != nil {
		return r, err
	}
	for _, d := range [][2]delayline.Stats{{before.AtoB.Stats, after.AtoB.Stats}, {before.BtoA.Stats, after.BtoA.Stats}} {
		r.dropped += d[1].Dropped - d[0].Dropped
		r.passed += d[1].DeliveredPackets - d[0].DeliveredPackets
		r.late = max(r.late, d[1].LateMax)
	}
	return r, nil
}

// restartAgents restarts the agents, so that they know no path.
func (rig *startRig) restartAgents(ctx context.Context) error {
	for _, host := range []string{"x1", "y1"} {
		if err := testbed.RestartAgent(ctx, rig.Deployment, host); err != nil {
			return err
		}
	}
	return nil
}
