package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/sos"
)

// peersLine is the fastest link that the lab sustains on two cores through two Open vSwitch
// userspace datapaths when every byte crosses each switch twice.
var peersLine = line{Rate: 1e9, MTU: 9000, Offload: true}

const (
	// bigBuffers is the limit of TCP buffers in the kernels of the tuned proxies.
	bigBuffers = 128 << 20
	// noise is the relative difference of two equal runs on a machine with other work.
	noise = 0.05
	// parallelStreams is the number of iperf3's parallel streams that its users try first.
	parallelStreams = 8
)

func sosPeers() Experiment {
	return Experiment{
		Name:     "sos-peers",
		Title:    "SOS beside an operator's alternatives, over round-trip time and loss",
		Question: "Does a client gain more by SOS than by a hand-built pair of TCP proxies, or by opening several connections itself?",
		Varies:   []string{"rtt", "loss", "peer"},
		Run:      runPeers,
	}
}

// peer is one way to transfer bytes from client to server.
type peer struct {
	name    string
	streams int
	sos     bool
	proxies string // name of the pair of hosts that they run on
}

func peersOf(s Scale) []peer {
	all := []peer{
		{name: "direct cubic"},
		{name: fmt.Sprintf("iperf3 -P %d", parallelStreams), streams: parallelStreams},
	}
	for _, p := range proxyPairs {
		all = append(all, peer{name: "haproxy " + p.title, proxies: p.name})
	}
	all = append(all, peer{name: "SOS", sos: true})
	return pick(s, []peer{all[0], all[5], all[6]}, all, all)
}

// proxyPair is two hosts, NAMEx and NAMEy, on which a split proxy runs.
type proxyPair struct {
	name, title, congestion string
	bigBuffers              bool
}

var proxyPairs = []proxyPair{
	{name: "c", title: "cubic", congestion: "cubic"},
	{name: "b", title: "BBR", congestion: "bbr"},
	{name: "cc", title: "cubic 128 MB", congestion: "cubic", bigBuffers: true},
	{name: "bb", title: "BBR 128 MB", congestion: "bbr", bigBuffers: true},
}

// addProxies adds the hosts of every pair to a topology of two sites.
func addProxies(t lab.Topology, mtu int) lab.Topology {
	for _, p := range proxyPairs {
		for _, side := range []struct{ end, sw string }{{"x", "s1"}, {"y", "s2"}} {
			h := ordinary(lab.Host{Name: p.name + side.end})
			h.Congestion = p.congestion
			if p.bigBuffers {
				useBigBuffers(h)
			}
			t.Hosts = append(t.Hosts, h)
			t.Links = append(t.Links, lab.Link{A: lab.End{Node: h.Name}, B: lab.End{Node: side.sw}, MTU: mtu})
		}
	}
	return t
}

// useBigBuffers lets the kernel's TCP at a host of ordinary grow its buffers up to bigBuffers.
func useBigBuffers(h lab.Host) {
	h.Sysctls["net.ipv4.tcp_rmem"] = fmt.Sprint("4096 131072 ", bigBuffers)
	h.Sysctls["net.ipv4.tcp_wmem"] = fmt.Sprint("4096 16384 ", bigBuffers)
}

// percent returns the text of a share of lost packets.
func percent(loss float64) string { return fmt.Sprintf("%.3g", 100*loss) }

type peerCell struct {
	rtt  time.Duration
	loss float64
	peer string
}

// peerRun holds the measurements of one transfer: its goodput, and what happened to packets in its
// direction, from its first to its last.
type peerRun struct {
	testbed.Goodput
	crossing
}

func runPeers(ctx context.Context, env *Env) (*Result, error) {
	ms := time.Millisecond
	allRTTs := []time.Duration{10 * ms, 50 * ms, 100 * ms, 200 * ms}
	allLosses := []float64{0, 1e-5, 1e-4, 1e-3}
	rtts, err1 := chosen(env.Only, "rtt", pick(env.Scale, allRTTs[1:2], allRTTs, allRTTs), time.Duration.String)
	losses, err2 := chosen(env.Only, "loss", pick(env.Scale, []float64{0, 1e-4}, allLosses, allLosses), percent)
	peers, err3 := chosen(env.Only, "peer", peersOf(env.Scale), func(p peer) string { return p.name })
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	raw, err := env.CSV("peers", "rtt_seconds", "loss", "peer", "goodput_bits_per_second", "retransmits", "packets_dropped", "packets_delivered", "mean_queueing_seconds")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	env.Steps(len(rtts) * len(losses) * len(peers))
	cells := map[peerCell]peerRun{}
	for _, rtt := range rtts {
		l := peersLine
		l.RTT = rtt
		err := env.withSite(ctx, addProxies(twoSites("peers", l, 1), l.MTU), func(ctx context.Context, s *site) error {
			for _, loss := range losses {
				l.Loss = loss
				if err := s.lab.SetLinkParams(ctx, "wan", l.params()); err != nil {
					return err
				}
				for _, p := range peers {
					env.Step("%s, %v", p.name, l)
					var run peerRun
					run.crossing, err = s.crossed(ctx, true, func() (err error) {
						run.Goodput, err = p.measure(ctx, env, s)
						return err
					})
					if err != nil {
						return fmt.Errorf("%s over %v: %w", p.name, l, err)
					}
					env.Logf("%.1f Mbit/s, %d packets dropped and %d delivered after %v in the queue", run.Mbit(), run.dropped, run.delivered, run.queued.Round(time.Millisecond/10))
					cells[peerCell{rtt, loss, p.name}] = run
					if err := raw.Row(rtt, loss, p.name, run.BitsPerSecond, run.Retransmits, run.dropped, run.delivered, run.queued); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return peersResult(rtts, losses, peers, cells), nil
}

// measure runs one transfer in this peer's way.
func (p peer) measure(ctx context.Context, env *Env, s *site) (testbed.Goodput, error) {
	t := s.transfer(env.Scale, p.streams)
	// A bbr connection reduces its rate every ten seconds to probe the round trip. A shorter
	// measurement may or may not include that.
	t.Time = pick[time.Duration](env.Scale, 10, 10, 20) * time.Second
	if p.sos {
		c, err := s.carriedTransfer(ctx, t, sos.Tuning{})
		return c.Goodput, err
	}
	if p.proxies != "" {
		stop, err := p.startProxies(ctx, env, s, netip.AddrPortFrom(s.lab.Host("server").Addr(), iperfPort))
		if err != nil {
			return testbed.Goodput{}, err
		}
		defer stop()
		t.To = s.lab.Host(p.proxies + "x").Addr().String()
	}
	return t.Run(ctx)
}

// startProxies runs a split proxy: one near the client, which connects to one near the server,
// which connects to the server.
func (p peer) startProxies(ctx context.Context, env *Env, s *site, server netip.AddrPort) (func(), error) {
	near, far := s.lab.Host(p.proxies+"x"), s.lab.Host(p.proxies+"y")
	second, err := testbed.StartHAProxy(ctx, far, env.Dir, netip.AddrPortFrom(far.Addr(), iperfPort), server.String())
	if err != nil {
		return nil, err
	}
	first, err := testbed.StartHAProxy(ctx, near, env.Dir, netip.AddrPortFrom(near.Addr(), iperfPort), fmt.Sprintf("%s:%d", far.Addr(), iperfPort))
	if err != nil {
		second.Stop()
		return nil, err
	}
	return func() { first.Stop(); second.Stop() }, nil
}

func peersResult(rtts []time.Duration, losses []float64, peers []peer, cells map[peerCell]peerRun) *Result {
	r := &Result{Network: fmt.Sprintf("two switches, one link of %.0f Mbit/s between them, MTU %d, its queue one bandwidth-delay product (at least 20 ms)", peersLine.Rate/1e6, peersLine.MTU)}
	payload := peersLine.payload()
	table := Table{Title: fmt.Sprintf("Goodput in Mbit/s; the link carries at most %.1f Mbit/s of payload", payload/1e6), Columns: []string{"RTT", "loss %"}}
	drops := Table{Title: "Packets that the link's queue dropped, in percent of those that crossed the link", Columns: []string{"RTT", "loss %"}}
	for _, p := range peers {
		table.Columns, drops.Columns = append(table.Columns, p.name), append(drops.Columns, p.name)
	}
	table.Columns = append(table.Columns, "SOS / link", "SOS / best other")
	var c peerClaims
	for _, rtt := range rtts {
		plot := Plot{
			Name: fmt.Sprintf("goodput-%dms", rtt.Milliseconds()), Title: fmt.Sprintf("%v round trip", rtt),
			X: "loss, % (0 drawn at 0.0003)", Y: "goodput, Mbit/s", LogX: true,
		}
		series := make([]Series, len(peers))
		for _, loss := range losses {
			at := fmt.Sprintf("%v, %s %%", rtt, percent(loss))
			row, dropped := []any{rtt, percent(loss)}, []any{rtt, percent(loss)}
			best, sos := 0.0, 0.0
			for i, p := range peers {
				run := cells[peerCell{rtt, loss, p.name}]
				row = append(row, fmt.Sprintf("%.1f", run.Mbit()))
				dropped = append(dropped, fmt.Sprintf("%.2f", 100*run.dropShare()))
				series[i].Label = p.name
				series[i].Point(max(100*loss, 3e-4), run.Mbit())
				if p.sos {
					sos = run.BitsPerSecond
					c.seeSOS(at, sos/payload, run.dropShare())
				} else {
					best = max(best, run.BitsPerSecond)
				}
			}
			drops.Add(dropped...)
			if sos == 0 || best == 0 { // the user has left them out
				table.Add(append(row, "", "")...)
				continue
			}
			c.seeRatio(at, sos/best)
			table.Add(append(row, fmt.Sprintf("%.0f %%", 100*sos/payload), fmt.Sprintf("%.2f", sos/best))...)
		}
		plot.Series = series
		r.Plots = append(r.Plots, plot)
	}
	r.Tables = []Table{table, drops}
	c.conclude(r)
	r.Note("PEPsal is not compared: Debian 12 has no package of it.")
	r.Note("Direct and proxied connections cross the same switches as SOS, forwarded by the same controller. Each goodput is what the server received, after the first seconds of the transfer. Drops are those of the whole transfer, in its direction.")
	return r
}

// peerClaims collects the worst cases for the claims.
type peerClaims struct {
	share   worstCase // of the link
	dropped worstCase // packets that the queue has dropped for each that has crossed the link
	ratio   worstCase // to the best peer
	below   []string
}

// worstCase is the worst of some cells. Its place is empty if there are none.
type worstCase struct {
	value float64
	at    string
}

func (w *worstCase) least(at string, value float64) {
	if w.at == "" || value < w.value {
		*w = worstCase{value, at}
	}
}

func (w *worstCase) most(at string, value float64) {
	if w.at == "" || value > w.value {
		*w = worstCase{value, at}
	}
}

func (c *peerClaims) seeSOS(at string, share, dropped float64) {
	c.share.least(at, share)
	c.dropped.most(at, dropped)
}

func (c *peerClaims) seeRatio(at string, ratio float64) {
	c.ratio.least(at, ratio)
	if ratio < 1-noise {
		c.below = append(c.below, at)
	}
}

// linkShareBound is the share of the link's payload rate that SOS must carry in every cell.
const linkShareBound = 0.9

func (c *peerClaims) conclude(r *Result) {
	if c.share.at != "" {
		r.Claim(c.share.value >= linkShareBound, fmt.Sprintf("SOS at least %.0f %% of the link's payload rate at every cell", 100*linkShareBound), "worst %.0f %% (%s)", 100*c.share.value, c.share.at)
		r.Claim(c.dropped.value <= dropBound, fmt.Sprintf("at most %.0f %% dropped by the queue for SOS at every cell", 100*dropBound), "worst %.1f %% (%s)", 100*c.dropped.value, c.dropped.at)
	}
	if c.ratio.at == "" {
		return
	}
	text := fmt.Sprintf("SOS nowhere more than %.0f %% below the best of the others", 100*noise)
	if len(c.below) == 0 {
		r.Claim(true, text, "worst ratio %.2f (%s)", c.ratio.value, c.ratio.at)
		return
	}
	r.Claim(false, text, "worst ratio %.2f (%s); below at %s", c.ratio.value, c.ratio.at, strings.Join(c.below, "; "))
}
