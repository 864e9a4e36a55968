package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/sos"
)

const (
	transportsPort = 4433
	// transportsGain is how much more than SOS over TCP another transport must carry to be worth its
	// code.
	transportsGain = 1.1
)

func sosTransports() Experiment {
	return Experiment{
		Name:     "sos-transports",
		Title:    "TCP, Multipath TCP and QUIC as transports between two agents",
		Question: "Would the agents carry more, or at less cost, over QUIC or Multipath TCP than over their TCP connections?",
		Varies:   []string{"network", "way"},
		Run:      runTransports,
	}
}

// transportNetwork is one or two paths between two sites.
type transportNetwork struct {
	name  string
	paths []delayline.Params
}

func transportNetworks(s Scale) []transportNetwork {
	path := func(mbit, rtt, loss float64) delayline.Params {
		return delayline.Params{Rate: mbit * 1e6, Delay: time.Duration(rtt/2) * time.Millisecond, Loss: loss}
	}
	all := []transportNetwork{
		{"one path, 0.05 % loss", []delayline.Params{path(300, 50, 0.0005)}},
		{"one path, 0.5 % loss", []delayline.Params{path(300, 50, 0.005)}},
		{"one long path, 0.05 % loss", []delayline.Params{path(300, 150, 0.0005)}},
		{"two equal paths", []delayline.Params{path(150, 50, 0.0005), path(150, 50, 0.0005)}},
		{"two unlike paths", []delayline.Params{path(200, 50, 0.0005), path(100, 100, 0.0005)}},
	}
	return pick(s, []transportNetwork{all[0], all[4]}, all, all)
}

// payload returns the largest TCP payload in bit/s that the paths carry together.
func (n transportNetwork) payload() (sum float64) {
	for _, p := range n.paths {
		sum += line{Rate: p.Rate, MTU: 1500}.payload()
	}
	return sum
}

// transportWay carries bytes between the sites.
type transportWay struct {
	name    string
	paths   int // the least number of paths for which it is measured
	measure func(context.Context) (transportRun, error)
}

// transportRun holds the measurements of one transfer.
type transportRun struct {
	bitsPerSecond    float64
	sender, receiver float64 // CPU seconds for each GB
	second           float64 // what the second path carried, as a share of what both carried
}

// transportsRig is a lab with two pairs of hosts. The agents x1 and y1 are joined by switches, as
// SOS needs it, and the hosts p and q directly, by paths of the same properties.
type transportsRig struct {
	env     *Env
	network transportNetwork
	site    *site
}

// pairPath returns the name of path i, from 0, between p and q.
func pairPath(i int) string { return fmt.Sprintf("pair%d", i+1) }

// pairAddr returns the address of p or q on path i.
func pairAddr(host string, i int) netip.Addr {
	last := byte(1)
	if host == "q" {
		last = 2
	}
	return netip.AddrFrom4([4]byte{10, 9, byte(i + 1), last})
}

func (n transportNetwork) topology() lab.Topology {
	t := joinedSites("transports", 1500, n.paths)
	for _, name := range []string{"p", "q"} {
		h := ordinary(lab.Host{Name: name})
		h.Congestion = "bbr"
		useBigBuffers(h)
		t.Hosts = append(t.Hosts, h)
	}
	for i, p := range n.paths {
		end := func(host string) lab.End {
			return lab.End{Node: host, Addresses: []netip.Prefix{netip.PrefixFrom(pairAddr(host, i), 24)}}
		}
		t.Links = append(t.Links, lab.Link{Name: pairPath(i), A: end("p"), B: end("q"), AtoB: p, BtoA: p, MTU: 1500})
	}
	return t
}

func (rig *transportsRig) ways() []transportWay {
	all := []transportWay{
		{"TCP, bbr", 1, rig.byTCP},
		{"MPTCP, bbr", 2, rig.byMPTCP},
		{"QUIC, bbr", 1, rig.byQUIC},
		{waySOS, 1, rig.bySOS},
	}
	return slices.DeleteFunc(all, func(w transportWay) bool { return w.paths > len(rig.network.paths) })
}

func runTransports(ctx context.Context, env *Env) (*Result, error) {
	networks, err := chosen(env.Only, "network", transportNetworks(env.Scale), func(n transportNetwork) string { return n.name })
	if err != nil {
		return nil, err
	}
	raw, err := env.CSV("transports", "network", "way", "bits_per_second", "sender_cpu_seconds_per_gb", "receiver_cpu_seconds_per_gb", "share_of_second_path")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	repeats := pick(env.Scale, 1, 3, 5)
	r := &Result{Network: "two agents with switches between them, and two hosts with paths of the same properties between them and no switch; each queue holds one bandwidth-delay product"}
	t := Table{Title: fmt.Sprintf("Medians of %d transfers of %v", repeats, transportsTime(env.Scale)), Columns: []string{"network", "way", "Mbit/s", "of the paths", "over the second path", "CPU s/GB of the sender", "CPU s/GB of the receiver"}}
	rigs, ways, steps := make([]*transportsRig, len(networks)), make([][]transportWay, len(networks)), 0
	for i, n := range networks {
		rigs[i] = &transportsRig{env: env, network: n}
		if ways[i], err = chosen(env.Only, "way", rigs[i].ways(), func(w transportWay) string { return w.name }); err != nil {
			return nil, err
		}
		steps += repeats * len(ways[i])
	}
	env.Steps(steps)
	for i, rig := range rigs {
		n := rig.network
		rates := map[string]float64{}
		err = env.withSite(ctx, n.topology(), func(ctx context.Context, s *site) error {
			rig.site = s
			if err := rig.prepare(ctx); err != nil {
				return err
			}
			for _, way := range ways[i] {
				m, err := rig.median(ctx, way, repeats, raw)
				if err != nil {
					return fmt.Errorf("%s: %w", way.name, err)
				}
				rates[way.name] = m.bitsPerSecond
				second := ""
				if len(n.paths) > 1 {
					second = fmt.Sprintf("%.0f %%", 100*m.second)
				}
				t.Add(n.name, way.name, fmt.Sprintf("%.1f", m.bitsPerSecond/1e6), fmt.Sprintf("%.0f %%", 100*m.bitsPerSecond/n.payload()), second, fmt.Sprintf("%.2f", m.sender), fmt.Sprintf("%.2f", m.receiver))
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", n.name, err)
		}
		claimTransports(r, n, rates)
	}
	r.Tables = []Table{t}
	r.Note("TCP and MPTCP are the kernel's, sent by iperf3 with buffers of up to %d MB. QUIC is that of ngtcp2, with windows of up to 256 MB. MPTCP's subflows are those that the kernel opens by itself when the receiver announces its second address.", bigBuffers>>20)
	r.Note("The CPU time of SOS is that of the agents, which receive each byte and send it. That of the others is that of programs which only send, or only receive.")
	return r, nil
}

// claimTransports claims that no other transport carries noticeably more than SOS.
func claimTransports(r *Result, n transportNetwork, rates map[string]float64) {
	bySOS, ok := rates[waySOS]
	if !ok || len(rates) == 1 {
		return
	}
	best, which := 0.0, ""
	for name, rate := range rates {
		if name != waySOS && rate > best {
			best, which = rate, name
		}
	}
	r.Claim(best < transportsGain*bySOS, fmt.Sprintf("%s: no other transport carries %.0f %% more than SOS", n.name, 100*(transportsGain-1)), "%s %.1f Mbit/s, SOS %.1f", which, best/1e6, bySOS/1e6)
}

// prepare waits until all links are known, and lets the pair of hosts use their second path for
// MPTCP.
func (rig *transportsRig) prepare(ctx context.Context) error {
	if err := rig.site.waitPaths(ctx, len(rig.network.paths)); err != nil {
		return err
	}
	if len(rig.network.paths) == 1 {
		return nil
	}
	for _, host := range []string{"p", "q"} {
		if err := runAll(ctx, rig.site.lab.Host(host), "ip mptcp limits set subflows 2 add_addr_accepted 2"); err != nil {
			return err
		}
	}
	return runAll(ctx, rig.site.lab.Host("q"), fmt.Sprintf("ip mptcp endpoint add %s signal", pairAddr("q", 1)))
}

func (rig *transportsRig) median(ctx context.Context, way transportWay, repeats int, raw *CSV) (m transportRun, err error) {
	var all []transportRun
	for i := range repeats {
		rig.env.Step("%s, %s, run %d", rig.network.name, way.name, i+1)
		if err := rig.idle(ctx); err != nil {
			return m, err
		}
		run, err := way.measure(ctx)
		if err != nil {
			return m, err
		}
		rig.env.Logf("%.1f Mbit/s; %.2f and %.2f CPU seconds a GB", run.bitsPerSecond/1e6, run.sender, run.receiver)
		if err := raw.Row(rig.network.name, way.name, run.bitsPerSecond, run.sender, run.receiver, run.second); err != nil {
			return m, err
		}
		all = append(all, run)
	}
	of := func(figure func(transportRun) float64) float64 {
		values := make([]float64, len(all))
		for i, run := range all {
			values[i] = figure(run)
		}
		return median(values)
	}
	return transportRun{
		bitsPerSecond: of(func(r transportRun) float64 { return r.bitsPerSecond }),
		sender:        of(func(r transportRun) float64 { return r.sender }),
		receiver:      of(func(r transportRun) float64 { return r.receiver }),
		second:        of(func(r transportRun) float64 { return r.second }),
	}, nil
}

// transportsTime returns how long a transfer lasts, its start included.
func transportsTime(s Scale) time.Duration {
	return pick[time.Duration](s, 5, 10, 10) * time.Second
}

// secondsPerGB returns the CPU seconds for each GB of a program that uses a part of a core, in
// percent, while it carries the given rate.
func secondsPerGB(percent, bitsPerSecond float64) float64 {
	return percent / 100 * 8e9 / bitsPerSecond
}

// byTCP measures TCP from p to q.
func (rig *transportsRig) byTCP(ctx context.Context) (transportRun, error) {
	return rig.byIperf(ctx, rig.site.lab.Host("p"), rig.site.lab.Host("q"))
}

// byMPTCP measures MPTCP from p to q.
func (rig *transportsRig) byMPTCP(ctx context.Context) (transportRun, error) {
	return rig.byIperf(ctx, testbed.Multipath(rig.site.lab.Host("p")), testbed.Multipath(rig.site.lab.Host("q")))
}

// byIperf measures a transfer by iperf3 from a client at p to a server at q.
func (rig *transportsRig) byIperf(ctx context.Context, p, q testbed.Place) (run transportRun, err error) {
	t := testbed.Transfer{Client: p, Server: q, To: pairAddr("q", 0).String(), Port: transportsPort, Time: transportsTime(rig.env.Scale)}
	var g testbed.Goodput
	run.second, err = rig.secondPath(ctx, pairPath, func() (bytes int64, err error) {
		g, err = t.Run(ctx)
		return int64(g.BitsPerSecond * t.Time.Seconds() / 8), err
	})
	run.bitsPerSecond, run.sender, run.receiver = g.BitsPerSecond, secondsPerGB(g.ClientCPU, g.BitsPerSecond), secondsPerGB(g.ServerCPU, g.BitsPerSecond)
	return run, err
}

// byQUIC measures a download over QUIC from p to q.
func (rig *transportsRig) byQUIC(ctx context.Context) (run transportRun, err error) {
	l := rig.site.lab
	server, err := testbed.StartQUICServer(ctx, l.Host("p"), rig.env.Dir, netip.AddrPortFrom(pairAddr("p", 0), transportsPort), "bbr")
	if err != nil {
		return run, err
	}
	defer server.Stop()
	size := int64(rig.network.payload() / float64(len(rig.network.paths)) * transportsTime(rig.env.Scale).Seconds() / 8)
	before, err := testbed.CPUTime(server.PID())
	if err != nil {
		return run, err
	}
	var d testbed.QUICDownload
	run.second, err = rig.secondPath(ctx, pairPath, func() (bytes int64, err error) {
		d, err = server.Download(ctx, l.Host("q"), size)
		return size, err
	})
	if err != nil {
		return run, err
	}
	after, err := testbed.CPUTime(server.PID())
	gigabytes := float64(size) / 1e9
	run.bitsPerSecond = float64(8*size) / d.Total.Seconds()
	run.sender, run.receiver = (after-before).Seconds()/gigabytes, d.ClientCPU.Seconds()/gigabytes
	return run, err
}

// bySOS measures a transfer from client to server, which the agents carry over all paths.
func (rig *transportsRig) bySOS(ctx context.Context) (run transportRun, err error) {
	t := rig.site.transfer(rig.env.Scale, 1)
	t.Omit, t.Time = 0, transportsTime(rig.env.Scale)
	var c carried
	run.second, err = rig.secondPath(ctx, sitePath, func() (bytes int64, err error) {
		c, err = rig.site.carriedTransfer(ctx, t, sos.Tuning{Paths: len(rig.network.paths)})
		return int64(c.BitsPerSecond * t.Time.Seconds() / 8), err
	})
	run.bitsPerSecond, run.sender, run.receiver = c.BitsPerSecond, secondsPerGB(c.SenderCPU, c.BitsPerSecond), secondsPerGB(c.ReceiverCPU, c.BitsPerSecond)
	return run, err
}

// delivered returns the number of bytes that each path of a name has delivered so far.
func (rig *transportsRig) delivered(ctx context.Context, name func(int) string) ([]uint64, error) {
	all := make([]uint64, len(rig.network.paths))
	for i := range all {
		link, err := rig.site.lab.Link(name(i)).Stats(ctx)
		if err != nil {
			return nil, err
		}
		all[i] = link.AtoB.Stats.DeliveredBytes
	}
	return all, nil
}

// idle waits until nothing crosses the paths, because a kernel goes on sending what a program that
// has ended had written.
func (rig *transportsRig) idle(ctx context.Context) error {
	// A path without traffic of ours still carries discovery, ARP and the agents' heartbeats.
	const pause, most = 500 * time.Millisecond, 50_000
	return testbed.Poll(ctx, "idle paths", func() error {
		for _, name := range []func(int) string{pairPath, sitePath} {
			before, err := rig.delivered(ctx, name)
			if err != nil {
				return err
			}
			if err := tasks.Sleep(ctx, pause); err != nil {
				return err
			}
			after, err := rig.delivered(ctx, name)
			if err != nil {
				return err
			}
			if n := sum(after) - sum(before); n > most {
				return fmt.Errorf("%d bytes in %v", n, pause)
			}
		}
		return nil
	})
}

// secondPath returns the share of the second path in what all paths have carried during a transfer.
// It returns an error if the paths have carried fewer bytes than the transfer's program has counted.
func (rig *transportsRig) secondPath(ctx context.Context, name func(int) string, transfer func() (bytes int64, err error)) (float64, error) {
	before, err := rig.delivered(ctx, name)
	if err != nil {
		return 0, err
	}
	bytes, err := transfer()
	if err != nil {
		return 0, err
	}
	after, err := rig.delivered(ctx, name)
	if err != nil {
		return 0, err
	}
	carried := sum(after) - sum(before)
	if int64(carried) < bytes {
		return 0, fmt.Errorf("the paths have carried %d bytes, fewer than the %d that were counted", carried, bytes)
	}
	if len(after) == 1 {
		return 0, nil
	}
	return float64(after[1]-before[1]) / float64(carried), nil
}
