package experiment

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/cinema"
)

const (
	treeSource = "h1"
	// treeDelay is the delay of each link between switches, and treeControl that of each switch's
	// link to the controller, one way.
	treeDelay   = 5 * time.Millisecond
	treeControl = 2 * time.Millisecond
	// treeSize is the payload of the datagrams whose copies are counted, and treeEvery the time
	// between two datagrams of a channel.
	treeSize  = 1000
	treeEvery = 50 * time.Millisecond
	// treeFrame is the size of a datagram's frame on a link, with the headers of Ethernet, IPv4 and
	// UDP.
	treeFrame = treeSize + 42
	// treeToRP is the number of links from the router of the timed viewer to the rendezvous point,
	// and treeRPToSource the number of links from the rendezvous point to the source's router.
	treeToRP, treeRPToSource = 2, 1
	// maxInFlight bounds the time that a datagram is in flight.
	maxInFlight = 200 * time.Millisecond
	// minCopies is the smallest number of copies with which a link counts as part of the tree.
	// Fewer copies are the controller's probes of links.
	minCopies = 0.5
)

// treeGateways lists the hosts of the egress gateways.
var treeGateways = []string{"h3", "h6", "h8"}

func cinemaTree() Experiment {
	return Experiment{
		Name:     "cinema-tree",
		Title:    "Copies on links and control messages, against unicast, flooding and IP multicast; times to join, leave and change",
		Question: "What do a channel's viewers cost the network, and how soon do their requests take effect?",
		Source:   "dissertation 2017, sections 6.3.1 and 6.3.3: models of join, leave and switch of GENI Cinema and of PIM-SM",
		Varies:   []string{"way"},
		Run:      runCinemaTree,
	}
}

// treeLoad is a number of viewers who watch a number of channels.
type treeLoad struct{ channels, viewers int }

// treeCost holds the cost of a load.
type treeCost struct {
	links        int     // links that carry datagrams, counted by direction
	copies, most float64 // of one datagram of each channel: copies on all links, and on the link with the most
	messages     float64 // control messages for all viewers to join; NaN if the way has none
	missed       int     // datagrams that a viewer has not received, or has received twice
}

// treeWay is a way to distribute channels to viewers.
type treeWay struct {
	name    string
	measure func(context.Context, treeLoad) (treeCost, error)
}

func treeLoads(s Scale) (all []treeLoad) {
	for _, channels := range []int{1, 5} {
		for _, viewers := range pick(s, []int{1, 10, 100}, []int{1, 3, 10, 30, 100}, []int{1, 2, 3, 5, 10, 20, 50, 100}) {
			all = append(all, treeLoad{channels, viewers})
		}
	}
	return all
}

// treeNetwork returns eight switches in a ring with two chords, and a host at each.
func treeNetwork(name string) (lab.Topology, map[string]testbed.CinemaRole) {
	link := delayline.Params{Rate: 100e6, Delay: treeDelay}
	t := lab.Ring(name, 8, link)
	for _, chord := range [][2]string{{"s1", "s4"}, {"s3", "s7"}} {
		t.Links = append(t.Links, lab.Both(chord[0], chord[1], link))
	}
	roles := map[string]testbed.CinemaRole{treeSource: testbed.CinemaIngress}
	for _, h := range treeGateways {
		roles[h] = testbed.CinemaOwn
	}
	for i := range t.Hosts {
		t.Hosts[i].Agent = roles[t.Hosts[i].Name] != ""
	}
	for i := range t.Switches {
		t.Switches[i].ControlDelay = treeControl
	}
	return t, roles
}

// treeRun is one run of the experiment.
type treeRun struct {
	*Env
	loads  []treeLoad
	raw    *CSV
	ways   []string // ways that were measured
	costs  map[string][]treeCost
	times  *treeTimes // times of Cinema
	routed *treeTimes // times of IP multicast
}

// treeNetworks lists the networks in which ways are measured. Each way has a network of its own,
// except for two ways that share one.
var treeNetworks = []struct {
	name string // name of the first way
	run  func(*treeRun, context.Context) error
}{{wayCinema, (*treeRun).controlled}, {wayFlood, (*treeRun).flooded}, {wayMulticast, (*treeRun).multicast}}

func runCinemaTree(ctx context.Context, env *Env) (*Result, error) {
	names := []string{}
	for _, n := range treeNetworks {
		names = append(names, n.name)
	}
	names, err := chosen(env.Only, "way", names, func(n string) string { return n })
	if err != nil {
		return nil, err
	}
	r := &Result{Network: fmt.Sprintf("eight switches in a ring with two chords, links of %v and 100 Mbit/s, %v from the controller to each switch; an ingress gateway, three egress gateways. For IP multicast, routers in the place of the switches, with pimd", treeDelay, treeControl)}
	raw, err := env.CSV("copies", "way", "channels", "viewers", "links", "copies", "most_on_a_link", "control_messages", "missed")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	t := &treeRun{Env: env, loads: treeLoads(env.Scale), raw: raw, costs: map[string][]treeCost{}}
	for _, n := range treeNetworks {
		switch {
		case !slices.Contains(names, n.name):
		case n.name == wayMulticast && !hasPimd():
			r.Note("IP multicast was not measured: pimd is missing (Debian's package pimd).")
		default:
			if err := n.run(t, ctx); err != nil {
				return nil, err
			}
		}
	}
	treeResult(r, t)
	treeTimesResult(r, t)
	return r, nil
}

// controlled measures the trees of Cinema, and unicast by default forwarding.
func (t *treeRun) controlled(ctx context.Context) error {
	return t.withTree(ctx, func(ctx context.Context, rig *treeRig) (err error) {
		for _, w := range []treeWay{{wayCinema, rig.cinema}, {wayUnicast, rig.unicast}} {
			if err := t.measure(ctx, w); err != nil {
				return err
			}
		}
		t.Step("times of joining, leaving and changing")
		t.times, err = t.treeTimes(ctx, rig)
		return err
	})
}

func (t *treeRun) flooded(ctx context.Context) error {
	return t.withFlood(ctx, func(ctx context.Context, rig *floodRig) error {
		return t.measure(ctx, treeWay{wayFlood, rig.flood})
	})
}

func (t *treeRun) multicast(ctx context.Context) error {
	return t.withMulticast(ctx, func(ctx context.Context, rig *multicastRig) (err error) {
		if err := tasks.Sleep(ctx, pimdReady); err != nil {
			return err
		}
		if err := t.measure(ctx, treeWay{wayMulticast, rig.multicast}); err != nil {
			return err
		}
		t.Step("times of IP multicast")
		t.routed, err = t.multicastTimes(ctx, rig)
		return err
	})
}

// measure measures a way with all loads.
func (t *treeRun) measure(ctx context.Context, w treeWay) error {
	t.ways = append(t.ways, w.name)
	for _, load := range t.loads {
		t.Step("%s: %d channels, %d viewers", w.name, load.channels, load.viewers)
		c, err := w.measure(ctx, load)
		if err != nil {
			return fmt.Errorf("%s, %d channels, %d viewers: %w", w.name, load.channels, load.viewers, err)
		}
		t.costs[w.name] = append(t.costs[w.name], c)
		if err := t.raw.Row(w.name, load.channels, load.viewers, c.links, c.copies, c.most, c.messages, c.missed); err != nil {
			return err
		}
	}
	return nil
}

// counted calls send, and derives from the links' byte counters how many copies of each channel's
// datagrams the links carried meanwhile. lasts limits the time of sending.
func counted(ctx context.Context, bytes func(context.Context) (map[string]uint64, error), lasts time.Duration, send func(context.Context) (uint64, error)) (c treeCost, sent uint64, err error) {
	before, err := bytes(ctx)
	if err != nil {
		return c, 0, err
	}
	sending, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	if sent, err = send(sending); err != nil {
		return c, 0, err
	}
	if err := tasks.Sleep(ctx, maxInFlight); err != nil {
		return c, 0, err
	}
	after, err := bytes(ctx)
	if err != nil {
		return c, 0, err
	}
	for at, n := range after {
		copies := float64(n-before[at]) / treeFrame / float64(sent)
		if copies < minCopies {
			continue
		}
		c.links++
		c.copies += copies
		c.most = max(c.most, copies)
	}
	c.messages = math.NaN()
	return c, sent, nil
}

// treeLasts returns how long copies are counted.
func treeLasts(s Scale) time.Duration { return pick(s, 2*time.Second, 4*time.Second, 10*time.Second) }

// treeChannel returns the name of the channel with a number.
func treeChannel(number int) string { return fmt.Sprintf("c%d", number) }

// addSilent declares channels 1 to n, which nobody publishes.
func addSilent(ctx context.Context, d *testbed.Deployment, n int, ingress func(number int) string) error {
	for number := 1; number <= n; number++ {
		err := d.AddChannel(ctx, cinema.ChannelSpec{Name: treeChannel(number), Number: number, BitRate: zapBitRate, Ingress: ingress(number)})
		if err != nil {
			return err
		}
	}
	return nil
}
