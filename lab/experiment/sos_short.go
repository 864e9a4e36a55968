package experiment

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/sos"
)

// Agents carry short connections to shortCarriedPort, but not those to shortDirectPort. So the
// network need not change between measurements of the two.
const (
	shortCarriedPort = webPort
	shortDirectPort  = 8081
	shortFile        = "small"
	shortSize        = 2 << 10
)

func sosShort() Experiment {
	return Experiment{
		Name:     "sos-short",
		Title:    "Short connections by the thousand, direct and by SOS",
		Question: "Does every short connection through agents end as it would have without them, and how many are there a second?",
		Varies:   []string{"rtt", "at-once", "closes", "way"},
		Run:      runShort,
	}
}

// shortCell is one combination of the parameters.
type shortCell struct {
	rtt    time.Duration
	closes string // the end that closes first
	atOnce int
	way    string
}

func (c shortCell) String() string {
	return fmt.Sprintf("%v, %s closes first, %d at once, %s", c.rtt, c.closes, c.atOnce, c.way)
}

// shortPlan describes what is measured.
type shortPlan struct {
	rtts         []time.Duration
	closes, ways []string
	atOnce       []int
	count        int           // number of connections of a cell
	limit        time.Duration // bounds the time of a cell with few connections at once
}

const (
	wayDirect    = "direct"
	waySOS       = "SOS"
	closesServer = "server"
	closesClient = "client"
)

// planShort returns the values of each parameter for the scale, or those that the user has
// selected.
func planShort(env *Env) (p shortPlan, err error) {
	ms := time.Millisecond
	rtts, atOnce := []time.Duration{0, 20 * ms, 80 * ms}, []int{1, 6, 50, 200}
	var errs [4]error
	p.rtts, errs[0] = chosenOr(env.Only, "rtt", rtts, pick(env.Scale, rtts[2:], rtts, rtts), time.Duration.String)
	p.atOnce, errs[1] = chosenOr(env.Only, "at-once", atOnce, pick(env.Scale, atOnce[2:3], atOnce, atOnce), strconv.Itoa)
	text := func(s string) string { return s }
	p.closes, errs[2] = chosen(env.Only, "closes", []string{closesServer, closesClient}, text)
	p.ways, errs[3] = chosen(env.Only, "way", []string{wayDirect, waySOS}, text)
	p.count = pick(env.Scale, 1000, 10_000, 100_000)
	p.limit = pick[time.Duration](env.Scale, 20, 70, 700) * time.Second
	return p, errors.Join(errs[:]...)
}

// countOf returns the number of connections of a cell. It is reduced if connections one after the
// other would take longer than the limit. A connection takes up to four round trips.
func (p shortPlan) countOf(c shortCell) int {
	each := 4*c.rtt + 5*time.Millisecond
	return min(p.count, c.atOnce*int(p.limit/each))
}

// shortLine returns the link for a round trip; the longest one also loses packets.
func shortLine(rtt time.Duration) line {
	l := line{Rate: 200e6, RTT: rtt, MTU: 1500}
	if rtt >= 80*time.Millisecond {
		l.Loss = 0.0002
	}
	return l
}

func runShort(ctx context.Context, env *Env) (*Result, error) {
	p, err := planShort(env)
	if err != nil {
		return nil, err
	}
	raw, err := env.CSV("connections", "rtt_seconds", "closes", "at_once", "way", "number", "client", "began", "took_seconds", "failure", "error")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	env.Steps(len(p.rtts) * len(p.closes) * len(p.atOnce) * len(p.ways))
	var all []shortOutcome
	for _, rtt := range p.rtts {
		l := shortLine(rtt)
		err := env.withSite(ctx, shortTopology(l), func(ctx context.Context, s *site) error {
			rig, err := newShortRig(ctx, env, s)
			if err != nil {
				return err
			}
			defer rig.web.close()
			for _, closes := range p.closes {
				for _, atOnce := range p.atOnce {
					for _, way := range p.ways {
						c := shortCell{rtt, closes, atOnce, way}
						env.Step("%v: %d connections", c, p.countOf(c))
						o, err := rig.run(ctx, c, p.countOf(c))
						if err != nil {
							return fmt.Errorf("%v: %w", c, err)
						}
						env.Logf("%v", o)
						if err := o.save(raw); err != nil {
							return err
						}
						all = append(all, o)
					}
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return shortResult(all), nil
}

// shortTopology returns two sites whose client can open more connections than an ordinary host: it
// uses every port, and uses a port again a second after its last use.
func shortTopology(l line) lab.Topology {
	t := twoSites("short", l, 1)
	for i := range t.Hosts {
		if t.Hosts[i].Name == "client" {
			t.Hosts[i].Sysctls["net.ipv4.ip_local_port_range"] = "1024 65535"
			t.Hosts[i].Sysctls["net.ipv4.tcp_tw_reuse"] = "1"
		}
	}
	return t
}

// shortRig is a site with a web server on both ports, one of which is whitelisted.
type shortRig struct {
	*site
	web     webRoot
	content []byte
}

func newShortRig(ctx context.Context, env *Env, s *site) (*shortRig, error) {
	web, err := newWebRoot()
	if err != nil {
		return nil, err
	}
	rig := &shortRig{site: s, web: web, content: make([]byte, shortSize)}
	if err := rig.begin(ctx, env); err != nil {
		rig.web.close()
		return nil, err
	}
	return rig, nil
}

func (rig *shortRig) begin(ctx context.Context, env *Env) error {
	rand.Read(rig.content)
	if err := os.WriteFile(filepath.Join(rig.web.root, shortFile), rig.content, 0o644); err != nil {
		return err
	}
	for _, port := range []uint16{shortCarriedPort, shortDirectPort} {
		if err := rig.web.serve(ctx, env, rig.site, "server", port); err != nil {
			return err
		}
	}
	if err := rig.NearByHops(ctx); err != nil {
		return err
	}
	_, err := rig.Whitelist(ctx, rig.lab.Host("server").Addr(), shortCarriedPort, sos.Tuning{})
	return err
}

// run measures one cell.
func (rig *shortRig) run(ctx context.Context, c shortCell, count int) (o shortOutcome, err error) {
	port := uint16(shortDirectPort)
	if c.way == waySOS {
		port = shortCarriedPort
	}
	options := testbed.ShortOptions{
		Client: rig.lab.Host("client"), Server: netip.AddrPortFrom(rig.lab.Host("server").Addr(), port),
		File: shortFile, Want: rig.content, Count: 1, AtOnce: 1, ClientCloses: c.closes == closesClient,
	}
	// The first connection of a cell also finds the hosts' addresses. It is not measured.
	if _, err := testbed.Short(ctx, options); err != nil {
		return o, err
	}
	before, err := rig.Metrics(ctx)
	if err != nil {
		return o, err
	}
	past, err := rig.notCarried(ctx)
	if err != nil {
		return o, err
	}
	options.Count, options.AtOnce = count, c.atOnce
	o.shortCell = c
	began := time.Now()
	o.all, err = testbed.Short(ctx, options)
	o.took = time.Since(began)
	if err != nil {
		return o, err
	}
	after, err := rig.Metrics(ctx)
	if err != nil {
		return o, err
	}
	const established = "sluice_sos_sessions_established_total"
	o.carried = int(after.Sum(established) - before.Sum(established))
	now, err := rig.notCarried(ctx)
	for reason, x := range now {
		if n := x.Count - past[reason].Count; n > 0 {
			o.past = append(o.past, fmt.Sprintf("%d for %s: %s", n, reason, x.Cause))
		}
	}
	return o, err
}

// notCarried returns the connections that agents have not carried so far, by reason.
func (rig *shortRig) notCarried(ctx context.Context) (map[sos.Reason]sos.Direct, error) {
	var s sos.Status
	if err := rig.Get(ctx, "/api/v1/sos/status", &s); err != nil {
		return nil, err
	}
	out := map[sos.Reason]sos.Direct{}
	for _, x := range s.Direct {
		out[x.Reason] = x
	}
	return out, nil
}
