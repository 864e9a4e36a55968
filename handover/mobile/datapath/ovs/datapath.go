package ovs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/handover/mobile/datapath"
	"github.com/sluice-net/sluice/handover/mobile/datapath/frame"
	"github.com/sluice-net/sluice/openflow"
)

// Datapath carries a VNI's frames by a bridge of Open vSwitch. Open and the
// methods act on the network namespace of the thread that calls them, which has
// to be the switch's.
type Datapath struct {
	config datapath.Config
	log    *slog.Logger
	bridge bridge
	shield shield
	tso    bool

	// changing is held during a change, mu only while state is read or
	// written: a session that begins anew reads the state too.
	changing sync.Mutex
	link     *link

	mu      sync.Mutex
	closed  bool
	ports   map[string]port
	gro     map[string]bool // interfaces whose GRO is to be switched on again
	current datapath.Choice
	gates   gates
}

var _ datapath.Datapath = (*Datapath)(nil)

var errClosed = errors.New("the datapath is closed")

// Open makes the bridge and attaches the interfaces. What a killed daemon has
// left is taken over: the VNI with its addresses stays.
func Open(ctx context.Context, c datapath.Config, o Options) (*Datapath, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if err := Probe(ctx, o); err != nil {
		return nil, err
	}
	d := &Datapath{
		config: c, log: c.Log, bridge: bridge{name: c.VNI, options: o.withDefaults()}, shield: shieldOf(c.VNI),
		ports: map[string]port{}, gro: map[string]bool{}, gates: gates{},
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if err := d.open(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Datapath) open(ctx context.Context) error {
	d.tso = d.userspace() && d.bridge.userspaceTSO(ctx)
	stale, err := d.bridge.create(ctx, d.config)
	for _, name := range stale {
		d.groOn(name)
	}
	if err != nil {
		return err
	}
	if err := setUp(d.config.VNI); err != nil {
		return err
	}
	d.link = newLink(d.bridge.socket(), d.log, d.restore, d.packetIn)
	for _, i := range d.config.Interfaces {
		if err := d.Attach(ctx, i); err != nil {
			return err
		}
	}
	_, err = d.link.session(ctx)
	return err
}

func (d *Datapath) userspace() bool { return d.bridge.options.DatapathType == "netdev" }

// Kind is "ovs".
func (d *Datapath) Kind() string { return "ovs" }

// Merges is false.
func (d *Datapath) Merges() bool { return false }

// restore brings all rules to a switch that has none, or others.
func (d *Datapath) restore(ctx context.Context, s *session) error {
	d.mu.Lock()
	msgs := []openflow.Message{openflow.NewFlowMod(openflow.FlowDelete, openflow.TableAll, 0, openflow.Match{})}
	msgs = append(msgs, baseRules()...)
	for _, p := range d.ports {
		msgs = append(msgs, portRules(p, d.config.VNIMAC)...)
	}
	msgs = append(msgs, gates{}.change(d.gates)...)
	d.mu.Unlock()
	return s.bundle(ctx, msgs)
}

// packetIn sends what only the controller can rewrite.
func (d *Datapath) packetIn(s *session, m *openflow.PacketIn) {
	d.mu.Lock()
	var out port
	for _, p := range d.ports {
		if p.outTable() == m.Table {
			out = p
		}
	}
	d.mu.Unlock()
	if out.number == 0 || m.InPort != vniPort {
		return
	}
	data := slices.Clone(m.Data)
	frame.Outbound(data, d.config.VNIMAC, out.MAC)
	if err := s.send(0, openflow.NewPacketOut(vniPort, []openflow.Action{openflow.Output(out.number)}, data)); err != nil {
		d.log.Warn("sending a frame for the switch", "interface", out.Name, "error", err)
	}
}

// Attach makes an interface a port, or takes it anew.
func (d *Datapath) Attach(ctx context.Context, i datapath.Interface) error {
	if err := d.config.CheckInterface(i); err != nil {
		return err
	}
	d.changing.Lock()
	defer d.changing.Unlock()
	old, known, slot, err := d.place(i.Name)
	if err != nil {
		return err
	}
	if known {
		// The interface may have come back under its name, so it is opened anew.
		if err := d.drop(ctx, old); err != nil {
			return err
		}
	}
	p := port{Interface: i, slot: slot}
	if err := d.take(ctx, &p); err != nil {
		return errors.Join(err, d.cover(ctx))
	}
	d.fitMTU(ctx)
	return nil
}

// place finds the tables for an interface: those it had, or free ones.
func (d *Datapath) place(name string) (old port, known bool, slot int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return old, false, 0, errClosed
	}
	if old, known = d.ports[name]; known {
		return old, true, old.slot, nil
	}
	for slot := range datapath.MaxInterfaces {
		used := false
		for _, p := range d.ports {
			used = used || p.slot == slot
		}
		if !used {
			return old, false, slot, nil
		}
	}
	return old, false, 0, fmt.Errorf("all %d places for interfaces are taken", datapath.MaxInterfaces)
}

// take makes an interface a port and gives it its rules.
func (d *Datapath) take(ctx context.Context, p *port) (err error) {
	if d.userspace() {
		if err := d.cover(ctx, p.Name); err != nil {
			return err
		}
		if err := d.limitFrames(p.Name); err != nil {
			return err
		}
	}
	d.mu.Lock()
	gro := d.gro[p.Name]
	d.mu.Unlock()
	if p.number, err = d.bridge.addPort(ctx, p.Name, p.slot+1, gro); err != nil {
		return err
	}
	d.mu.Lock()
	d.ports[p.Name] = *p
	to := gatesOf(d.current, d.ports)
	d.mu.Unlock()
	return d.change(ctx, portRules(*p, d.config.VNIMAC), to)
}

// limitFrames keeps the kernel from joining frames beyond what a port takes.
func (d *Datapath) limitFrames(name string) error {
	if d.tso {
		return nil
	}
	was, err := switchGRO(name, false)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil // the interface knows no offload
	}
	if was {
		d.mu.Lock()
		d.gro[name] = true
		d.mu.Unlock()
	}
	return err
}

// change sends rules together with those that turn the present gates into to.
func (d *Datapath) change(ctx context.Context, rules []openflow.Message, to gates) error {
	s, err := d.link.session(ctx)
	if err != nil {
		return err
	}
	d.mu.Lock()
	from := d.gates
	d.mu.Unlock()
	if err := s.bundle(ctx, slices.Concat(rules, from.change(to))); err != nil {
		return err
	}
	d.mu.Lock()
	d.gates = to
	d.mu.Unlock()
	return nil
}

// drop takes a port away.
func (d *Datapath) drop(ctx context.Context, p port) error {
	d.mu.Lock()
	rest := maps.Clone(d.ports)
	delete(rest, p.Name)
	to := gatesOf(d.current, rest)
	d.mu.Unlock()
	if err := d.change(ctx, removePort(p), to); err != nil {
		return err
	}
	d.mu.Lock()
	d.ports = rest
	gro := d.gro[p.Name]
	delete(d.gro, p.Name)
	d.mu.Unlock()
	err := d.bridge.removePort(ctx, p.Name)
	if gro {
		d.groOn(p.Name)
	}
	return errors.Join(err, d.cover(ctx))
}

// groOn switches GRO on again at an interface that is given back.
func (d *Datapath) groOn(name string) {
	if _, err := switchGRO(name, true); err != nil {
		d.log.Debug("restoring an interface", "error", err) // it may have vanished
	}
}

// cover puts the shield before the interfaces attached, and one more.
func (d *Datapath) cover(ctx context.Context, more ...string) error {
	if !d.userspace() {
		return nil
	}
	d.mu.Lock()
	names := slices.AppendSeq(more, maps.Keys(d.ports))
	d.mu.Unlock()
	present := names[:0]
	for _, name := range names {
		if exists(name) { // the kernel has no place for a shield before one that vanished
			present = append(present, name)
		}
	}
	slices.Sort(present)
	return d.shield.cover(ctx, slices.Compact(present))
}

// Detach takes an interface away.
func (d *Datapath) Detach(ctx context.Context, name string) error {
	d.changing.Lock()
	defer d.changing.Unlock()
	d.mu.Lock()
	p, known := d.ports[name]
	closed := d.closed
	if known {
		d.current = d.current.Without(name)
	}
	d.mu.Unlock()
	switch {
	case closed:
		return errClosed
	case !known:
		return fmt.Errorf("interface %s: %w", name, datapath.ErrUnknownInterface)
	}
	defer d.fitMTU(ctx)
	return d.drop(ctx, p)
}

// Use changes the interfaces in use.
func (d *Datapath) Use(ctx context.Context, send string, receive []string) error {
	d.changing.Lock()
	defer d.changing.Unlock()
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return errClosed
	}
	c, err := datapath.NewChoice(send, receive, func(name string) bool { _, ok := d.ports[name]; return ok })
	before := d.gates
	to := gatesOf(c, d.ports)
	d.mu.Unlock()
	if err != nil {
		return err
	}
	both := maps.Clone(before)
	delete(both, vniPort)
	maps.Copy(both, to)
	for _, step := range []gates{both, to} {
		if err := d.step(ctx, step); err != nil {
			back, cancel := context.WithTimeout(context.WithoutCancel(ctx), greeting)
			defer cancel()
			return errors.Join(fmt.Errorf("switching to %q: %w", send, err), d.change(back, nil, before))
		}
	}
	d.mu.Lock()
	d.current = c
	d.mu.Unlock()
	return nil
}

// step makes one change, if it is one, and waits until packets meet it.
func (d *Datapath) step(ctx context.Context, to gates) error {
	d.mu.Lock()
	same := maps.Equal(d.gates, to)
	d.mu.Unlock()
	if same {
		return nil
	}
	if err := d.change(ctx, nil, to); err != nil {
		return err
	}
	return d.bridge.settle(ctx)
}

// statsTimeout bounds the reading of counters.
const statsTimeout = 5 * time.Second

// Stats reads the counters.
func (d *Datapath) Stats() (datapath.Stats, error) {
	d.mu.Lock()
	s := datapath.Stats{
		Send: d.current.Send, Receive: slices.Clone(d.current.Receive),
		Interfaces: map[string]datapath.InterfaceStats{},
	}
	names := map[int]string{}
	for name, p := range d.ports {
		names[p.slot] = name
		s.Interfaces[name] = datapath.InterfaceStats{}
	}
	closed := d.closed
	d.mu.Unlock()
	if closed {
		return s, errClosed
	}
	ctx, cancel := context.WithTimeout(context.Background(), statsTimeout)
	defer cancel()
	session, err := d.link.session(ctx)
	if err != nil {
		return s, err
	}
	replies, err := session.request(ctx, &openflow.MultipartRequest{Body: &openflow.FlowStatsRequest{FlowFilter: openflow.AllFlows()}})
	if err != nil {
		return s, fmt.Errorf("reading counters: %w", err)
	}
	for _, r := range replies {
		if m, ok := r.(*openflow.MultipartReply); ok {
			if flows, ok := m.Body.(*openflow.FlowStatsReply); ok {
				for i := range *flows {
					count(&s, names, &(*flows)[i])
				}
			}
		}
	}
	return s, nil
}

// Traffic is not counted.
func (d *Datapath) Traffic(string) (datapath.Traffic, error) {
	return datapath.Traffic{}, fmt.Errorf("%w: counters by interface without asking the switch", datapath.ErrUnsupported)
}

// Close removes the bridge, the VNI with it, and restores the interfaces.
func (d *Datapath) Close() error {
	d.changing.Lock()
	defer d.changing.Unlock()
	d.mu.Lock()
	closed := d.closed
	d.closed = true
	d.mu.Unlock()
	if closed {
		return nil
	}
	if d.link != nil {
		d.link.close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	err := d.bridge.remove(ctx)
	for name := range d.gro {
		if exists(name) {
			_, groErr := switchGRO(name, true)
			err = errors.Join(err, groErr)
		}
	}
	if d.userspace() {
		err = errors.Join(err, d.shield.remove(ctx))
	}
	return err
}

// FitMTU gives the VNI the MTU that fits the interfaces.
func (d *Datapath) FitMTU(ctx context.Context) error {
	d.mu.Lock()
	names := slices.Collect(maps.Keys(d.ports))
	d.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	if err := d.bridge.setMTU(ctx, d.config.FitMTU(names)); err != nil {
		return fmt.Errorf("MTU of the virtual interface %s: %w", d.config.VNI, err)
	}
	return nil
}

// fitMTU adapts the VNI after interfaces have come or gone.
func (d *Datapath) fitMTU(ctx context.Context) {
	if err := d.FitMTU(ctx); err != nil {
		d.log.Warn("setting the virtual interface's MTU", "interface", d.config.VNI, "error", err)
	}
}

func exists(name string) bool {
	_, err := net.InterfaceByName(name)
	return err == nil
}

// setUp brings the VNI up.
func setUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("virtual interface %s: %w", name, err)
	}
	return nil
}
