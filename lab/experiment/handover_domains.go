package experiment

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/handover"
	"github.com/sluice-net/sluice/services/handover/route"
)

const (
	// domainsBound is the largest time by which a handover between domains may take longer than the
	// formula says: two controllers work on it, and exchange four messages.
	domainsBound = 4 * modelBound
	// domainsGrowth is the largest time that a latency between the domains may add beyond itself.
	domainsGrowth = 2 * modelBound
)

// domainsRadio is the one-way latency of the device's radios.
const domainsRadio = time.Millisecond

func handoverDomains() Experiment {
	return Experiment{
		Name:     "handover-domains",
		Title:    "The time of a handover to another operator's domain against the formulas, over the latency between the domains",
		Question: "Does a device that comes to another domain wait by the latency between the domains longer than inside one, and no more?",
		Source:   "dissertation 2017, section 4.3.3: L_i + l_d for a device with two radios, T_c + l_d for one with one, 0 if the new path is prepared and the device has two radios; formulas, no measurements",
		Run:      runHandoverDomains,
	}
}

// domainsPoint is one point of the parameters: one-way latencies of the control connections, of the
// links between switches, and of the link between the domains' roots.
type domainsPoint struct{ control, link, between time.Duration }

func (p domainsPoint) String() string {
	return fmt.Sprintf("c = %v, l = %v, l_d = %v", p.control, p.link, p.between)
}

func domainsPoints(s Scale) []domainsPoint {
	ms := time.Millisecond
	quick := []domainsPoint{{0, 0, 0}, {0, 0, 20 * ms}}
	normal := []domainsPoint{{0, 0, 0}, {0, 0, 5 * ms}, {0, 0, 20 * ms}, {0, 0, 50 * ms}, {5 * ms, 2 * ms, 0}, {5 * ms, 2 * ms, 20 * ms}}
	full := append(normal[:len(normal):len(normal)], domainsPoint{20 * ms, 5 * ms, 0}, domainsPoint{20 * ms, 5 * ms, 20 * ms}, domainsPoint{20 * ms, 5 * ms, 50 * ms})
	return pick(s, quick, normal, full)
}

// domainsKind is a kind of move to the other domain.
type domainsKind struct {
	radios int
	// announced says whether the first domain announces the device to the other before it moves.
	announced bool
	// policy is that of the device. With "seamless" its packets go to both places from then on.
	policy string
}

func (k domainsKind) String() string {
	way := "unannounced"
	if k.announced {
		way = "announced"
	}
	return fmt.Sprintf("%s, %s, radios: %d", k.policy, way, k.radios)
}

// prepared reports whether packets go to the new place before the device does.
func (k domainsKind) prepared() bool { return k.announced && k.policy == "seamless" }

var domainsKinds = []domainsKind{
	{1, false, "saving"}, {2, false, "saving"}, {1, true, "saving"}, {2, true, "saving"}, {1, true, "seamless"}, {2, true, "seamless"},
}

// arrival returns L_i of the edge, with the root of the first domain as switch 0, plus l_d: the time
// from when the controllers send the changes until the device's packets reach its new edge.
func (p domainsPoint) arrival() time.Duration {
	c := []time.Duration{p.control, p.control, p.control} // root of the first domain, root and edge of the second
	all := route.Latency(c, []time.Duration{p.between, p.link})
	return all[len(all)-1]
}

// reached returns the published time from a device's request until its packets arrive: the request's
// way to the controller, L_i + l_d, and the radio. It is zero if the path is prepared, but for the
// radio.
func (p domainsPoint) reached(k domainsKind) time.Duration {
	if k.prepared() {
		return domainsRadio
	}
	return domainsRadio + p.control + p.arrival() + domainsRadio
}

// silence returns the published time without packets.
func (p domainsPoint) silence(k domainsKind) time.Duration {
	switch {
	case k.prepared() && k.radios == 2:
		return 0
	case k.prepared():
		return p.between // what is sent last to the old place arrives sooner than what follows it
	case k.radios == 2:
		return p.arrival() // L_i + l_d
	}
	return p.reached(k) // T_c + l_d, without T_a, which is nothing in the lab
}

// domainsSamples holds the measurements of a kind of move at a point, in ms.
type domainsSamples struct {
	first, gap, still []float64
	lost              int
}

// domainsRig is two domains, between which simulated devices move.
type domainsRig struct {
	*roamSite // of the first domain
	next      uint16
	raw       *CSV
}

func runHandoverDomains(ctx context.Context, env *Env) (*Result, error) {
	repeats := pick(env.Scale, 8, 10, 30)
	points := domainsPoints(env.Scale)
	raw, err := env.CSV("moves", "control_seconds", "link_seconds", "between_seconds", "policy", "announced", "radios", "run", "formula_first_seconds", "formula_silence_seconds",
		"first_packet_seconds", "gap_seconds", "gap_before_seconds", "lost")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	env.Steps(len(points))
	var all []map[domainsKind]*domainsSamples
	o := lab.MobilityOptions{Levels: 2, Interfaces: 2, ControlDelay: time.Millisecond, Link: delayline.Params{Delay: time.Millisecond}, Radio: delayline.Params{Delay: domainsRadio}}
	err = env.withLab(ctx, lab.MobilityDomains("domains", o), func(ctx context.Context, l *lab.Lab) error {
		a, b := o.Domains()
		d, err := testbed.DeployHandover(ctx, testbed.HandoverOptions{
			Lab: l, Binary: env.Binary, LogDir: env.Dir, Unsigned: true, Domains: []testbed.HandoverNetwork{{Name: "a", Network: a}, {Name: "b", Network: b}},
		})
		if err != nil {
			return err
		}
		defer d.Close()
		for _, x := range d.Domains {
			for _, policy := range []string{"saving", "seamless"} {
				if err := x.PutClass(ctx, policy, handover.ClassSpec{Policy: policy, Trigger: "open"}); err != nil {
					return err
				}
			}
		}
		rig := &domainsRig{roamSite: &roamSite{lab: l, network: a, domain: d.Domains[0]}, raw: raw}
		defer rig.closeRadios()
		if err := rig.openRadios(o.Interfaces); err != nil {
			return err
		}
		all, err = measurePoints(ctx, env, points, repeats, rig.shape, rig.measure)
		return err
	})
	if err != nil {
		return nil, err
	}
	return domainsResult(points, all), nil
}

// shape sets the latencies of a point, and waits until the controllers have measured them.
func (rig *domainsRig) shape(ctx context.Context, p domainsPoint) error {
	control := func(string) time.Duration { return p.control }
	between := func(l lab.Link) time.Duration {
		if l.Name == "peering" {
			return p.between
		}
		return p.link
	}
	if err := rig.setLatencies(ctx, control, between); err != nil {
		return err
	}
	return tasks.Sleep(ctx, controlSettle)
}

func (rig *domainsRig) measure(ctx context.Context, p domainsPoint, repeats int) (map[domainsKind]*domainsSamples, error) {
	out := map[domainsKind]*domainsSamples{}
	for _, kind := range domainsKinds {
		out[kind] = &domainsSamples{}
	}
	for run := range repeats {
		for _, kind := range domainsKinds {
			if err := rig.once(ctx, p, kind, run+1, out[kind]); err != nil {
				return nil, fmt.Errorf("%v: %w", kind, err)
			}
		}
	}
	return out, nil
}

// once lets a new device join in the first domain and move to the other, while packets from a server
// of the first domain are sent to it.
func (rig *domainsRig) once(ctx context.Context, p domainsPoint, kind domainsKind, run int, out *domainsSamples) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	rig.next++
	from, to := rig.radios[0], rig.radios[1]
	var second []*testbed.Radio
	if kind.radios == 2 {
		second = append(second, to)
	}
	device, err := rig.newStation(ctx, rig.next, kind.policy, second...)
	if err != nil {
		return err
	}
	if _, err := device.Join(ctx, from); err != nil {
		return err
	}
	stream, err := rig.streamTo(ctx, device.IP, modelRate)
	if err != nil {
		return err
	}
	var asked atomic.Bool
	first, prepared := newFirstArrival(), newFirstArrival()
	from.Hear(device.IP, func(payload []byte, at time.Time) {
		if kind.radios == 2 || !asked.Load() {
			stream.Deliver(payload, at)
		}
	})
	to.Hear(device.IP, func(payload []byte, at time.Time) {
		prepared.note(at)
		if !asked.Load() {
			return
		}
		stream.Deliver(payload, at)
		first.note(at)
	})
	exchange, arrived, err := rig.move(ctx, device, kind, stream, &asked, first, prepared)
	log := stream.Stop()
	device.Leave(from)
	device.Leave(to)
	if err != nil {
		return err
	}
	report := log.Between(exchange.Sent, arrived.Add(watchedBefore/2))
	still := log.Between(exchange.Sent.Add(-watchedBefore), exchange.Sent.Add(-watchedBefore/30))
	reached := arrived.Sub(exchange.Sent)
	out.first, out.gap, out.still = append(out.first, inMS(reached)), append(out.gap, inMS(report.Gap)), append(out.still, inMS(still.Gap))
	out.lost += report.Lost
	return rig.raw.Row(p.control, p.link, p.between, kind.policy, kind.announced, kind.radios, run, p.reached(kind), p.silence(kind), reached, report.Gap, still.Gap, report.Lost)
}

// move announces the device if the kind says so, moves it, and returns the exchange by which it
// moved and the time of the first packet at its new place.
func (rig *domainsRig) move(ctx context.Context, d *roamer, kind domainsKind, stream *testbed.Stream, asked *atomic.Bool, first, prepared *firstArrival) (e testbed.Exchange, at time.Time, err error) {
	to := rig.radios[1]
	if err := awaitPackets(ctx, stream, modelRate/10); err != nil {
		return e, at, fmt.Errorf("before the move: %w", err)
	}
	if kind.announced {
		spec := handover.AnnounceSpec{Domain: "b", Port: rig.portOf(to), MAC: d.MAC(to).String()}
		if err := rig.domain.Do(ctx, http.MethodPost, "/api/v1/handover/devices/"+url.PathEscape(d.ID)+"/announce", spec, nil); err != nil {
			return e, at, fmt.Errorf("announce: %w", err)
		}
	}
	if kind.prepared() {
		if _, err := prepared.wait(ctx); err != nil {
			return e, at, fmt.Errorf("no packet at the announced place: %w", err)
		}
	}
	if err := tasks.Sleep(ctx, watchedBefore); err != nil {
		return e, at, err
	}
	asked.Store(true)
	if e, err = d.Move(ctx, to); err != nil {
		return e, at, err
	}
	if at, err = first.wait(ctx); err != nil {
		return e, at, fmt.Errorf("no packet at the new place: %w", err)
	}
	return e, at, tasks.Sleep(ctx, watchedBefore)
}

func domainsResult(points []domainsPoint, all []map[domainsKind]*domainsSamples) *Result {
	r := &Result{Network: "two domains of a root and two edge switches each, with a controller each, their roots joined; a simulated device on the raw interfaces of a host, " + fmt.Sprint(modelRate) + " UDP packets a second to it from the first domain"}
	t := Table{
		Title: "A move to the other domain in ms: formulas beside medians, and means with 95 % intervals",
		Columns: []string{
			"latencies", "move", "formula, first packet", "median", "mean", "formula, silence", "median", "mean", "silence before the move", "lost",
		},
	}
	plot := Plot{Name: "between", Title: "Request to first packet at the new place", X: "l_d, ms", Y: "median, ms", Left: true}
	lines := map[domainsKind]*Series{}
	var over, grown, prepared worstOf
	still := map[string]float64{} // excess over the formula without latency between the domains
	for i, p := range points {
		for _, kind := range domainsKinds {
			s, at := all[i][kind], fmt.Sprintf("%v, %v", p, kind)
			formula, silence := inMS(p.reached(kind)), inMS(p.silence(kind))
			first, gap := median(s.first), median(s.gap)-median(s.still)
			t.Add(p, kind, ms1(formula), ms1(median(s.first)), meanText(s.first, 1, 1), ms1(silence), ms1(median(s.gap)), meanText(s.gap, 1, 1), ms1(median(s.still)), s.lost)
			if p.control == 0 {
				if lines[kind] == nil {
					lines[kind] = &Series{Label: kind.String()}
				}
				lines[kind].Point(inMS(p.between), first)
			}
			if kind.prepared() {
				prepared.see(at, gap-silence)
				continue
			}
			group := fmt.Sprint(p.control, p.link, kind)
			if p.between == 0 {
				still[group] = first - formula
			}
			if p.control == 0 {
				over.see(at, max(first-formula, gap-silence))
			}
			grown.see(at, first-formula-still[group])
		}
	}
	for _, kind := range domainsKinds {
		plot.Series = append(plot.Series, *lines[kind])
	}
	r.Tables, r.Plots = append(r.Tables, t), append(r.Plots, plot)
	r.Claim(grown.value <= inMS(domainsGrowth), fmt.Sprintf("saving: the latency between the domains adds l_d to the time until the first packet, and at most %v more", domainsGrowth), "%v", grown)
	r.Claim(over.value <= inMS(domainsBound), fmt.Sprintf("saving, near controllers: first packet at most %v after T_c + l_d, and silence at most that above L_i + l_d with two radios, T_c + l_d with one", domainsBound), "%v", over)
	r.Claim(prepared.value <= inMS(modelBound), fmt.Sprintf("seamless, announced: silence, less the machine's own, at most %v above that of the formula, which is 0 with two radios, and l_d with one", modelBound), "%v", prepared)
	r.Note("%s", strings.Join([]string{
		"T_c is the request's way to the controller, L_i and the radio; T_a, the radio's association, is nothing in this lab.",
		"L_i counts the first domain's root as switch 0, and its link to the other root as l_d.",
		"The formulas have no term for what controllers tell each other: unannounced, the other domain asks for the device and claims it, in four messages, without latency here.",
		"Where control connections are slow, each domain confirms its changes before the other goes on, which adds round trips that the formulas do not have.",
	}, " "))
	return r
}
