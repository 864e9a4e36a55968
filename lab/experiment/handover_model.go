package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/handover"
	"github.com/sluice-net/sluice/services/handover/route"
)

// modelBound is the largest time by which a handover may take longer than in the model.
const modelBound = 5 * time.Millisecond

// modelRate is the number of packets a second by which the arrival at a place is measured.
const modelRate = 2000

func handoverModel() Experiment {
	return Experiment{
		Name:     "handover-model",
		Title:    "The time of a handover against the formulas, over latencies of control connections and links",
		Question: "Does a device wait as long as the switches' distance from the controller and from each other says, and no longer?",
		Source:   "dissertation 2017, section 4.3.3: T_c = T_a + T_d + T_f + T_e and L_i = max(L_{i-1} + l_{i-1}, c_i); formulas, no measurements",
		Run:      runHandoverModel,
	}
}

// latencies is one point of the parameters: one-way latencies of the control connections by level,
// of the links between switches, and of the radio.
type latencies struct {
	root, core, edge time.Duration
	link, radio      time.Duration
}

func (p latencies) String() string {
	return fmt.Sprintf("c = %v/%v/%v, l = %v", p.root, p.core, p.edge, p.link)
}

func modelPoints(s Scale) []latencies {
	ms := time.Millisecond
	even := func(c, l time.Duration) latencies { return latencies{c, c, c, l, ms} }
	quick := []latencies{even(0, 0), {20 * ms, 5 * ms, 0, 2 * ms, ms}}
	normal := []latencies{
		even(0, 0), even(5*ms, 0), even(20*ms, 0), even(0, 5*ms), even(0, 20*ms), even(5*ms, 5*ms), even(20*ms, 5*ms),
		{20 * ms, 5 * ms, 0, 2 * ms, ms},
		{0, 5 * ms, 20 * ms, 2 * ms, ms},
		{0, 20 * ms, 0, 5 * ms, ms},
	}
	full := slices.Clone(normal)
	for _, c := range []time.Duration{0, 2 * ms, 10 * ms, 40 * ms} {
		for _, l := range []time.Duration{0, 2 * ms, 10 * ms, 40 * ms} {
			full = append(full, even(c, l))
		}
	}
	return pick(s, quick, normal, full)
}

// modelMove is a kind of move, from one edge to another. branch lists the switches of the new
// branch, beginning with the join: the switch at which the new branch leaves the old one.
type modelMove struct {
	name     string
	from, to int
	branch   []string
}

// modelMoves lists moves in a tree of three levels with two switches below each.
var modelMoves = []modelMove{
	{"join at the core", 0, 1, []string{"core1", "edge2"}},
	{"join at the root", 1, 2, []string{"root", "core2", "edge3"}},
}

// control returns the latency of a switch's control connection at this point.
func (p latencies) control(sw string) time.Duration {
	switch sw[:4] {
	case "root":
		return p.root
	case "core":
		return p.core
	}
	return p.edge
}

// branch returns the latencies from which the model's formulas are computed.
func (p latencies) branch(m modelMove) (c, l []time.Duration) {
	for i, sw := range m.branch {
		c = append(c, p.control(sw))
		if i > 0 {
			l = append(l, p.link)
		}
	}
	return c, l
}

// formula returns the published time from a device's request until its packets arrive at its new
// place: the request's time to the controller, L_i of the edge, and the radio.
func (p latencies) formula(m modelMove) time.Duration {
	c, l := p.branch(m)
	all := route.Latency(c, l)
	return p.around() + all[len(all)-1]
}

func (p latencies) around() time.Duration { return 2*p.radio + p.edge }

// predict returns the time that formula returns, but for the order in which the changes are really
// made. A device with one radio has left its old place, so the changes are sent to all switches at
// once, as the formula assumes. A device with two radios is still served at its old place. Then the
// branch without its join changes first, while the join prepares its change, and the join changes
// when all switches have confirmed. This adds a round trip that the formula does not have.
func (p latencies) predict(m modelMove, radios int) time.Duration {
	if radios == 1 {
		return p.formula(m)
	}
	return p.around() + route.WaveLatency(p.branch(m))
}

// modelSamples holds the measurements of one point, in ms.
type modelSamples struct {
	discover, request, total []float64 // times of a join
	td, tf, te               []float64 // as the controller has measured them
	moves                    map[moveKind]*moveSamples
}

// moveKind is a kind of move of a device with one radio or two.
type moveKind struct {
	name   string
	radios int
}

type moveSamples struct {
	first   []float64 // from the request to the first packet at the new place
	gap     []float64 // longest gap, for one radio from its request on
	still   []float64 // longest gap before the move
	lost    int
	before  []float64 // from the request's arrival at the controller until its rules are sent
	applied []float64 // time of the rules as the controller has measured it
}

type modelRig struct {
	*roamSite
	env  *Env
	raw  *CSV
	next uint16
}

func runHandoverModel(ctx context.Context, env *Env) (*Result, error) {
	repeats := pick(env.Scale, 5, 10, 30)
	points := modelPoints(env.Scale)
	raw, err := env.CSV("moves", "c_root_seconds", "c_core_seconds", "c_edge_seconds", "link_seconds", "move", "radios", "run",
		"formula_seconds", "predicted_seconds", "first_packet_seconds", "gap_seconds", "gap_before_seconds", "lost", "rules_seconds", "before_rules_seconds")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	env.Steps(len(points))
	r := &Result{Network: "three levels of switches with two below each; a simulated device on the raw interfaces of a host, " + fmt.Sprint(modelRate) + " UDP packets a second to it"}
	var all []*modelSamples
	o := lab.MobilityOptions{
		Interfaces: 4, ControlDelay: time.Millisecond,
		Link: delayline.Params{Delay: time.Millisecond}, Radio: delayline.Params{Delay: time.Millisecond},
	}
	err = env.withRoaming(ctx, "model", o, func(ctx context.Context, s *roamSite) error {
		if err := s.domain.PutClass(ctx, "moving", handover.ClassSpec{Policy: "saving", Trigger: "open"}); err != nil {
			return err
		}
		rig := &modelRig{roamSite: s, env: env, raw: raw}
		var err error
		all, err = measurePoints(ctx, env, points, repeats, rig.shape, rig.measure)
		return err
	})
	if err != nil {
		return nil, err
	}
	modelResult(r, points, all)
	return r, nil
}

// latencySettle is how long the controller gets to measure the links of a point. The formulas are
// computed from the parameters of the lab, and not from these measurements.
const latencySettle = 10 * time.Second

// controlSettle is how long the controller needs to measure the latencies of control connections:
// it averages eight measurements.
const controlSettle = 2500 * time.Millisecond

// shape sets the latencies of a point and waits until the controller has measured them.
func (rig *modelRig) shape(ctx context.Context, p latencies) error {
	if err := rig.setLatencies(ctx, p.control, func(lab.Link) time.Duration { return p.link }); err != nil {
		return err
	}
	for i := range rig.radios {
		if err := rig.lab.SetLinkParams(ctx, accessLink(i), delayline.Params{Delay: p.radio}); err != nil {
			return err
		}
	}
	if err := tasks.Sleep(ctx, controlSettle); err != nil {
		return err
	}
	settling, cancel := context.WithTimeout(ctx, latencySettle)
	defer cancel()
	if err := rig.waitLatencies(settling, p.link); err != nil {
		rig.env.Logf("this machine is too busy to measure short links well: %v", err)
	}
	return context.Cause(ctx)
}

func (rig *modelRig) measure(ctx context.Context, p latencies, repeats int) (*modelSamples, error) {
	out := &modelSamples{moves: map[moveKind]*moveSamples{}}
	for run := range repeats {
		for _, radios := range []int{1, 2} {
			if err := rig.once(ctx, p, run+1, radios, out); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// once lets a new device join at the first edge and move twice.
func (rig *modelRig) once(ctx context.Context, p latencies, run, radios int, out *modelSamples) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	rig.next++
	var second []*testbed.Radio
	if radios == 2 {
		second = append(second, rig.radios[modelMoves[0].to])
	}
	device, err := rig.newStation(ctx, rig.next, "moving", second...)
	if err != nil {
		return err
	}
	join, err := device.Join(ctx, rig.radios[modelMoves[0].from])
	if err != nil {
		return err
	}
	out.discover = append(out.discover, inMS(join.Discover.Took()))
	out.request = append(out.request, inMS(join.Request.Took()))
	out.total = append(out.total, inMS(join.Request.Answered.Sub(join.Discover.Sent)))
	for _, m := range modelMoves {
		kind := moveKind{m.name, radios}
		if out.moves[kind] == nil {
			out.moves[kind] = &moveSamples{}
		}
		t := &modelTrip{modelMove: m, radios: radios, device: device, from: rig.radios[m.from], to: rig.radios[m.to]}
		if err := rig.move(ctx, p, t, run, out.moves[kind]); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return rig.readRecords(ctx, device.ID, out)
}

// modelTrip is one move of one device.
type modelTrip struct {
	modelMove
	radios   int
	device   *roamer
	from, to *testbed.Radio
	first    *firstArrival
	asked    atomic.Bool
}

// startReceiving starts the device's reception: with two radios at both places, with one only at
// the place where the device is.
func (t *modelTrip) startReceiving(stream *testbed.Stream) {
	t.first = newFirstArrival()
	t.from.Hear(t.device.IP, func(payload []byte, at time.Time) {
		if t.radios == 2 || !t.asked.Load() {
			stream.Deliver(payload, at)
		}
	})
	t.to.Hear(t.device.IP, func(payload []byte, at time.Time) {
		stream.Deliver(payload, at)
		t.first.note(at)
	})
}

// watchedBefore is how long a device is watched before it moves.
const watchedBefore = 300 * time.Millisecond

// move moves the device while packets are sent to it, and measures when they arrive at its new
// place.
func (rig *modelRig) move(ctx context.Context, p latencies, t *modelTrip, run int, out *moveSamples) error {
	stream, err := rig.streamTo(ctx, t.device.IP, modelRate)
	if err != nil {
		return err
	}
	t.startReceiving(stream)
	exchange, first, err := rig.underStream(ctx, stream, t)
	log := stream.Stop()
	t.device.Leave(t.from)
	if err != nil {
		return err
	}
	report := log.Between(exchange.Sent, first.Add(watchedBefore/2))
	// This span ends before the move begins, so that it does not include any of it.
	still := log.Between(exchange.Sent.Add(-watchedBefore), exchange.Sent.Add(-watchedBefore/30))
	reached := first.Sub(exchange.Sent)
	out.first = append(out.first, inMS(reached))
	out.gap = append(out.gap, inMS(report.Gap))
	out.still = append(out.still, inMS(still.Gap))
	out.lost += report.Lost
	record, err := rig.lastRecord(ctx, t.device.ID)
	if err != nil {
		return err
	}
	rules := time.Duration(record.Parts.Tf)
	before := time.Duration(record.Parts.Trigger) - rules
	out.before = append(out.before, inMS(before))
	out.applied = append(out.applied, inMS(rules))
	return rig.raw.Row(p.root, p.core, p.edge, p.link, t.name, t.radios, run, p.formula(t.modelMove), p.predict(t.modelMove, t.radios),
		reached, report.Gap, still.Gap, report.Lost, rules, before)
}

// underStream makes the move while packets of the stream arrive. It returns the exchange by which
// the device moved, and the time of the first packet at the new place.
func (rig *modelRig) underStream(ctx context.Context, stream *testbed.Stream, t *modelTrip) (e testbed.Exchange, first time.Time, err error) {
	if err := awaitPackets(ctx, stream, modelRate/10); err != nil {
		return e, first, fmt.Errorf("before the move: %w", err)
	}
	if err := tasks.Sleep(ctx, watchedBefore); err != nil {
		return e, first, err
	}
	t.asked.Store(true)
	if e, err = t.device.Move(ctx, t.to); err != nil {
		return e, first, err
	}
	if first, err = t.first.wait(ctx); err != nil {
		return e, first, fmt.Errorf("no packet at the new place: %w", err)
	}
	return e, first, tasks.Sleep(ctx, watchedBefore)
}

// readRecords reads the parts of T_c from the controller's record of the join.
func (rig *modelRig) readRecords(ctx context.Context, id string, out *modelSamples) error {
	all, err := rig.domain.Records(ctx, id)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(r handover.Record) bool { return r.Kind == handover.KindAttach })
	if i < 0 {
		return fmt.Errorf("the controller has no record of how %s came", id)
	}
	parts := all[i].Parts
	out.td = append(out.td, inMS(time.Duration(parts.Td)))
	out.tf = append(out.tf, inMS(time.Duration(parts.Tf)))
	out.te = append(out.te, inMS(time.Duration(parts.Te)))
	return nil
}

func inMS(d time.Duration) float64 { return 1000 * d.Seconds() }

// stationPort is the port of streams to simulated devices.
const stationPort = 6000

// streamTo starts a stream from the server to a simulated device.
func (s *roamSite) streamTo(ctx context.Context, to netip.Addr, rate int) (*testbed.Stream, error) {
	return testbed.StartStream(ctx, testbed.StreamOptions{
		Sender: s.lab.Host(s.network.Server), To: netip.AddrPortFrom(to, stationPort), Rate: rate,
	})
}
