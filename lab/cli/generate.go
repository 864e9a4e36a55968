package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
)

// labShape is a generator with its description.
type labShape struct {
	name  string
	short string
	// sizes lists the flags of the shape's size. The shape refuses the other size flags.
	sizes []string
	make  func(g *labGenerator) (lab.Topology, error)
}

// sizeFlags lists the flags that only some shapes have, with their ranges.
var sizeFlags = []struct {
	name        string
	least, most int
}{{"size", 2, 64}, {"depth", 1, 6}, {"fanout", 1, 16}}

// labGenerator holds the flags of "generate".
type labGenerator struct {
	name                                  string
	rate, delay, rtt, jitter, loss, queue string
	size, depth, fanout, mtu              int
	offload                               bool
	link                                  delayline.Params
}

func labShapes() []labShape {
	wan := func(build func(string, lab.WANOptions) lab.Topology) func(*labGenerator) (lab.Topology, error) {
		return func(g *labGenerator) (lab.Topology, error) { return build(g.name, lab.WANOptions{}), nil }
	}
	return []labShape{
		{"line", "--size switches in a row, a host on each", []string{"size"}, func(g *labGenerator) (lab.Topology, error) {
			return lab.Line(g.name, g.size, g.link), nil
		}},
		{"ring", "--size switches in a ring, a host on each", []string{"size"}, func(g *labGenerator) (lab.Topology, error) {
			return lab.Ring(g.name, g.size, g.link), nil
		}},
		{"tree", "a tree of --depth levels with --fanout children each", []string{"depth", "fanout"}, func(g *labGenerator) (lab.Topology, error) {
			return lab.Tree(g.name, g.depth, g.fanout, g.link), nil
		}},
		{"fat-tree", "the Clos network of --size-port switches", []string{"size"}, func(g *labGenerator) (lab.Topology, error) {
			if g.size%2 != 0 {
				return lab.Topology{}, &command.UsageError{Err: fmt.Errorf("--size %d: the switches of a fat tree have an even number of ports", g.size)}
			}
			return lab.FatTree(g.name, g.size, g.link), nil
		}},
		{"two-path", "client and server, an agent each, two paths between", nil, func(g *labGenerator) (lab.Topology, error) {
			return lab.TwoPathWAN(g.name, g.wanParams(), g.wanParams()), nil
		}},
		{"wan", "client and server, an agent each, one long link", nil, wan(lab.WAN)},
		{"limited", "a wan whose switches rewrite Ethernet addresses only", nil, wan(lab.LimitedWAN)},
		{"islands", "two OpenFlow islands with an IP network between", nil, wan(lab.Islands)},
		{"routed", "a wan with client and server behind routers", nil, wan(lab.Routed)},
		{"mobility", "devices that move below a tree of --depth levels", []string{"depth", "fanout"}, func(g *labGenerator) (lab.Topology, error) {
			return lab.Mobility(g.name, g.mobility()), nil
		}},
		{"domains", "two such networks with a controller each, joined", []string{"depth", "fanout"}, func(g *labGenerator) (lab.Topology, error) {
			return lab.MobilityDomains(g.name, g.mobility()), nil
		}},
		{"cinema", "four switches in a ring, two gateways for producers, two for viewers", nil, func(g *labGenerator) (lab.Topology, error) {
			return lab.Cinema(g.name, g.link), nil
		}},
		{"vlan", "a wan that translates VLANs on the way", nil, wan(lab.VLANWAN)},
	}
}

func generateCommand(a *app) *cobra.Command {
	g := &labGenerator{}
	var names, lines []string
	shapes := map[string]labShape{}
	for _, s := range labShapes() {
		names, shapes[s.name] = append(names, s.name), s
		lines = append(lines, fmt.Sprintf("  %-9s %s", s.name, s.short))
	}
	cmd := &cobra.Command{
		Use:       "generate SHAPE",
		Short:     "Print the topology file of a well-known shape",
		Long:      "Prints a topology file, to be changed and given to \"sluice-lab up\". Shapes:\n\n" + strings.Join(lines, "\n"),
		Args:      command.OneOf(names...),
		ValidArgs: names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(shapes[args[0]].check(cmd.Flags()), g.parse(args[0])); err != nil {
				return &command.UsageError{Err: err}
			}
			t, err := shapes[args[0]].make(g)
			if err != nil {
				return err
			}
			if t, err = g.finish(t); err != nil {
				return err
			}
			b, err := t.YAML()
			if err != nil {
				return err
			}
			_, err = a.Out.Write(b)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&g.name, "name", "", "name of the lab; default the shape's")
	f.IntVar(&g.size, "size", 4, "number of switches, or ports of a fat tree's switches")
	f.IntVar(&g.depth, "depth", 2, "levels of a tree")
	f.IntVar(&g.fanout, "fanout", 2, "children of each switch of a tree")
	f.StringVar(&g.rate, "rate", "", "rate of the links, as in 300Mbit")
	f.StringVar(&g.delay, "delay", "", "delay of the links one way, as in 25ms")
	f.StringVar(&g.rtt, "rtt", "", "delay of the links both ways, as in 50ms")
	f.StringVar(&g.jitter, "jitter", "", "jitter of the links")
	f.StringVar(&g.loss, "loss", "", "loss of the links each way, as in 0.05%")
	f.StringVar(&g.queue, "queue", "", "queue of the links, as in 512KiB")
	f.IntVar(&g.mtu, "mtu", 0, "MTU of all links (default 1500)")
	f.BoolVar(&g.offload, "offload", false, "let super-packets pass the switches: faster, checksums as behind a network card")
	cmd.MarkFlagsMutuallyExclusive("delay", "rtt")
	return cmd
}

// check returns an error if a size is out of range, or the shape does not have it.
func (s labShape) check(given *pflag.FlagSet) error {
	var errs []error
	for _, f := range sizeFlags {
		if !given.Changed(f.name) {
			continue
		}
		n, err := given.GetInt(f.name)
		switch {
		case err != nil:
			errs = append(errs, err)
		case !slices.Contains(s.sizes, f.name):
			errs = append(errs, fmt.Errorf("--%s does not apply to the shape %s: leave it out", f.name, s.name))
		case n < f.least || n > f.most:
			errs = append(errs, fmt.Errorf("--%s %d: write a number from %d to %d", f.name, n, f.least, f.most))
		}
	}
	return errors.Join(errs...)
}

func (g *labGenerator) parse(shape string) error {
	if g.name == "" {
		g.name = shape
	}
	p := &g.link
	err := errors.Join(
		setUnit(&p.Rate, "--rate", g.rate, units.ParseRate),
		setUnit(&p.Delay, "--delay", g.delay, units.ParseTime),
		setUnit(&p.Delay, "--rtt", g.rtt, units.ParseTime),
		setUnit(&p.Jitter, "--jitter", g.jitter, units.ParseTime),
		setUnit(&p.Loss, "--loss", g.loss, units.ParseShare),
		setUnit(&p.Queue, "--queue", g.queue, units.ParseSize),
	)
	if g.rtt != "" {
		p.Delay /= 2
	}
	return err
}

func (g *labGenerator) mobility() lab.MobilityOptions {
	return lab.MobilityOptions{Levels: max(g.depth, 2), Fanout: g.fanout, Link: g.link}
}

// wanParams returns the parameters of the long link: those of the flags that are given, and those
// of the demo for the others.
func (g *labGenerator) wanParams() delayline.Params {
	p := g.link
	if g.rate == "" {
		p.Rate = 300e6
	}
	if g.delay+g.rtt == "" {
		p.Delay = 75e6
	}
	if g.loss == "" {
		p.Loss = 0.0005
	}
	return p
}

// finish applies the flags to all shaped links, and checks the topology.
func (g *labGenerator) finish(t lab.Topology) (lab.Topology, error) {
	for i := range t.Switches {
		t.Switches[i].Offload = g.offload
	}
	for i := range t.Links {
		l := &t.Links[i]
		if l.Name == "wan" {
			l.AtoB, l.BtoA = g.wanParams(), g.wanParams()
		}
		if g.mtu != 0 {
			l.MTU = g.mtu
		}
	}
	return t, t.Check()
}
