package experiment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/experiment/polling"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// startController starts the controller of a way.
func (r *messageRig) startController(ctx context.Context, w controlWay) (countedController, error) {
	interval := max(time.Duration(float64(5*time.Second)/r.scale.pace), time.Second)
	if w.polled {
		return r.poll(ctx, interval)
	}
	mode := "proactive"
	if w.reactive {
		mode = "reactive"
	}
	n, err := testbed.DeployNetwork(ctx, testbed.NetworkOptions{
		Lab: r.lab, Binary: r.env.Binary, LogDir: r.env.Dir, Interval: interval,
		Rate:     func(lab.Link) float64 { return fatTreeRate },
		Settings: "  forwarding: {mode: " + mode + "}\n" + r.sampling(w.fatTreeWay), Services: r.services(w.fatTreeWay),
	})
	if err != nil {
		return nil, err
	}
	return &sluiceController{n, w.reactive}, nil
}

// sluiceController is Sluice's controller.
type sluiceController struct {
	*testbed.Network
	reactive bool
}

// hosts implements countedController.
func (o *sluiceController) hosts(ctx context.Context, n int) error {
	m, err := o.Metrics(ctx)
	name := "sluice_network_destinations"
	if o.reactive {
		name = "sluice_network_hosts"
	}
	if got := m[name]; err == nil && got < float64(n) {
		err = fmt.Errorf("%.0f of %d are known to all switches", got, n)
	}
	return err
}

// begin implements countedController.
func (*sluiceController) begin(context.Context) error { return nil }

// count implements countedController.
func (o *sluiceController) count(ctx context.Context) (controlCount, error) {
	m, err := o.Metrics(ctx)
	return controlled(func(kind, about string) float64 {
		return m.SumOf("sluice_network_messages_total", "type", kind, "about", about)
	}), err
}

// polled is the controller that reads counters.
type polled struct {
	*polling.Controller
	group *tasks.Group
	ended chan error
}

// poll starts the controller that reads counters, and waits until it knows all links.
func (r *messageRig) poll(ctx context.Context, interval time.Duration) (countedController, error) {
	capacities, links, err := r.capacities()
	if err != nil {
		return nil, err
	}
	l, err := r.lab.Control().Listen("tcp", r.lab.ControllerAddr().String())
	if err != nil {
		return nil, err
	}
	c, err := polling.New(polling.Options{Listeners: []net.Listener{l}, Capacities: capacities, Interval: interval})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	p := &polled{c, tasks.New(), make(chan error, 1)}
	p.group.Start(func(ctx context.Context) { p.ended <- c.Run(ctx) })
	if err := testbed.Poll(ctx, "all links", func() error {
		if found := len(c.Network().Topology().Links); found < links {
			return fmt.Errorf("%d of %d are known", found, links)
		}
		return nil
	}); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// capacities returns the capacities of all ports of switches, and the number of directed links
// between switches.
func (r *messageRig) capacities() (of map[network.PortRef]uint64, links int, err error) {
	t := r.lab.Topology()
	dpids := map[string]openflow.DatapathID{}
	for _, s := range t.Switches {
		dpids[s.Name] = openflow.DatapathID(s.DPID)
	}
	of = map[network.PortRef]uint64{}
	for _, link := range t.Links {
		joins := 0
		for _, end := range []lab.End{link.A, link.B} {
			dpid, ok := dpids[end.Node]
			if !ok {
				continue
			}
			port, err := r.lab.Switch(end.Node).Port(link.Name)
			if err != nil {
				return nil, 0, err
			}
			of[network.PortRef{Switch: dpid, Port: uint32(port)}] = fatTreeRate
			joins++
		}
		if joins == 2 {
			links += 2
		}
	}
	return of, links, nil
}

// hosts implements countedController.
func (p *polled) hosts(_ context.Context, n int) error {
	if led := p.Network().HostStats().Destinations; led < n {
		return fmt.Errorf("%d of %d are known to all switches", led, n)
	}
	return nil
}

// begin implements countedController.
func (p *polled) begin(ctx context.Context) error { return p.Begin(ctx) }

// count implements countedController.
func (p *polled) count(context.Context) (controlCount, error) {
	sent, received := p.Messages()
	all := map[[2]string]float64{}
	for _, messages := range []network.Messages{sent, received} {
		for kind, n := range messages.All() {
			all[[2]string{strings.ToLower(kind.Type.String()), kind.About}] += float64(n)
		}
	}
	return controlled(func(kind, about string) float64 { return all[[2]string{kind, about}] }), nil
}

// Close ends the controller.
func (p *polled) Close() error {
	p.group.Stop()
	return <-p.ended
}
