package classes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/event"
	"github.com/sluice-net/sluice/kit/servicetest"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/ovsdb"
	"github.com/sluice-net/sluice/services/qos/mark"
	"github.com/sluice-net/sluice/services/qos/match"
	"github.com/sluice-net/sluice/services/qos/reserve"
	"github.com/sluice-net/sluice/store"
	"github.com/sluice-net/sluice/store/memstore"
)

// still is a network whose ports have one capacity.
type still struct {
	*servicetest.Network
	anchors  map[netip.Addr]network.Anchor
	capacity atomic.Uint64
}

func (f *still) PortNumbers(openflow.DatapathID) ([]uint32, bool) { return []uint32{1, 2, 3, 9}, true }
func (f *still) Capacity(topology.PortRef) uint64                 { return f.capacity.Load() }
func (f *still) use(topology.PortRef) reserve.Use                 { return reserve.Use{Capacity: f.capacity.Load()} }

// newStill is a row of three switches with hosts at the first and the last.
func newStill() *still {
	return &still{Network: servicetest.NewNetwork(row(3, time.Millisecond), host(1), host(3))}
}

func (f *still) Anchored(a netip.Addr) (network.Anchor, bool) {
	x, ok := f.anchors[a]
	return x, ok
}

// databases are those of userspace datapaths, whose bridges do at once what they are told.
type databases struct {
	bases map[uint64]*base
}

func (d *databases) Declare(want ovsdb.Want) {
	for _, b := range d.bases {
		b.mu.Lock()
		b.want = want
		b.mu.Unlock()
	}
	d.Touch()
}

func (d *databases) Touch() {
	for _, b := range d.bases {
		b.settle()
	}
}

func (d *databases) Ensure(_ context.Context, dpid uint64, _ []uint32) error {
	b, err := d.base(dpid)
	if err == nil {
		b.settle()
	}
	return err
}

func (d *databases) base(dpid uint64) (*base, error) {
	if b := d.bases[dpid]; b != nil {
		return b, nil
	}
	return nil, fmt.Errorf("switch %d has no database", dpid)
}

func (d *databases) Bridge(dpid uint64) (ovsdb.Bridge, <-chan struct{}) {
	b, err := d.base(dpid)
	if err != nil {
		return ovsdb.Bridge{}, nil
	}
	return b.bridge()
}

func (d *databases) WaitBridge(_ context.Context, dpid uint64) (ovsdb.Bridge, error) {
	_, err := d.base(dpid)
	b, _ := d.Bridge(dpid)
	return b, err
}

// base is the database of one switch.
type base struct {
	dpid     uint64
	settling sync.Mutex // one after the other

	mu      sync.Mutex
	want    ovsdb.Want
	roots   map[uint32]ovsdb.Root
	known   map[uint32]string
	changed chan struct{}
	broken  bool // it changes nothing any more
}

func (b *base) bridge() (ovsdb.Bridge, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bridge := ovsdb.Bridge{DPID: b.dpid, Datapath: ovsdb.Userspace}
	for number, r := range b.roots {
		q := &ovsdb.QoS{Root: r, Tags: map[string]string{ovsdb.OwnerTag: DatabaseOwner, mark.TagKnown: b.known[number]}}
		bridge.Ports = append(bridge.Ports, ovsdb.Port{Number: number, QoS: q})
	}
	return bridge, b.changed
}

// settle brings the bridge to what is wanted.
func (b *base) settle() {
	b.settling.Lock()
	defer b.settling.Unlock()
	for {
		b.mu.Lock()
		want := b.want
		b.mu.Unlock()
		if want == nil {
			return
		}
		now, _ := b.bridge()
		w, err := want(b.dpid, now)
		b.mu.Lock()
		same := err != nil || b.broken || reflect.DeepEqual(b.roots, w.Queues)
		if !same {
			b.roots = w.Queues
			close(b.changed)
			b.changed = make(chan struct{})
		}
		b.mu.Unlock()
		if same {
			return
		}
	}
}

// change does something to the database that the service has not asked for.
func (b *base) change(f func(*base)) {
	b.mu.Lock()
	f(b)
	close(b.changed)
	b.changed = make(chan struct{})
	b.mu.Unlock()
	b.settle()
}

// classify does what a classifier does that has installed all marks.
func (b *base) classify() {
	b.change(func(b *base) {
		for number, r := range b.roots {
			var all []mark.Entry
			for _, q := range r.Queues {
				if e, ok, _ := mark.Read(q.ID, q.Tags); ok {
					all = append(all, e)
				}
				if e, ok, _ := mark.ReadKept(q.ID, q.Tags); ok {
					all = append(all, e)
				}
			}
			b.known[number] = mark.List(all)
		}
	})
}

// queue is a class's queue at a port.
func (b *base) queue(port uint32) (ovsdb.Queue, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.roots[port].Queues {
		if q.Tags[TagClass] != "" {
			return q, true
		}
	}
	return ovsdb.Queue{}, false
}

// sick is a store that can fail.
type sick struct {
	store.Store
	ill atomic.Bool
}

var errSick = errors.New("the store is away")

func (s *sick) Put(ctx context.Context, key string, value []byte) error {
	if s.ill.Load() {
		return errSick
	}
	return s.Store.Put(ctx, key, value)
}

func (s *sick) Apply(ctx context.Context, ops ...store.Op) error {
	if s.ill.Load() {
		return errSick
	}
	return s.Store.Apply(ctx, ops...)
}

func (s *sick) Delete(ctx context.Context, key string) error {
	if s.ill.Load() {
		return errSick
	}
	return s.Store.Delete(ctx, key)
}

// setting is a service with everything that it works with.
type setting struct {
	*Service
	t      *testing.T
	fabric *still
	rules  *servicetest.Ledger
	store  *sick
	bases  map[uint64]*base
	bus    *event.Bus
}

// served runs a service in a row of three userspace switches, with hosts at the first and the last.
func served(t *testing.T) *setting {
	t.Helper()
	x := &setting{
		t: t, fabric: newStill(), rules: servicetest.NewLedger(),
		store: &sick{Store: memstore.New()}, bases: map[uint64]*base{}, bus: event.NewBus(1, 64),
	}
	x.fabric.capacity.Store(10e6)
	for _, d := range x.fabric.Datapaths() {
		x.bases[uint64(d)] = &base{dpid: uint64(d), known: map[uint32]string{}, changed: make(chan struct{})}
	}
	s := x.service()
	x.Service = s
	if err := s.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Databases.Declare(s.queues.desiredState)
	close(s.loaded)
	s.tasks.Start(s.Declared.Run)
	t.Cleanup(func() { s.tasks.Stop(); x.bus.Close() })
	return x
}

// service is one that has not started yet.
func (x *setting) service() *Service {
	o := quiet(x.fabric)
	o.Rules, o.Store, o.Databases = x.rules, x.store, &databases{x.bases}
	o.Publish = func(kind string, attrs any) { x.bus.Publish("qos."+kind, attrs) }
	return New(o)
}

// quiet are options of a service that tells nobody anything.
func quiet(f *still) Options {
	return Options{
		Network: f, Book: reserve.New(f.use), Store: memstore.New(), Databases: &databases{}, Log: slog.New(slog.DiscardHandler), Publish: func(string, any) {},
		Critical: nothingCritical{}, Quota: 0.05, Interval: 5 * time.Second, Settle: 15 * time.Second,
	}
}

// nothingCritical has no flows.
type nothingCritical struct{}

func (nothingCritical) Within([]openflow.Match) []reserve.Key { return nil }
func (nothingCritical) GiveWay([]openflow.Match, string)      {}

// promises are those of a service, as carriers ask for them.
func promises(s *Service) *promiser { return &promiser{s.classes, s.loaded, s.updates} }

// request is one for the UDP packets to a port of the third host.
func request(t *testing.T, name string, port int) Class {
	t.Helper()
	spec := ClassSpec{Name: name, Priority: "1", Flows: []match.Flow{{IPv4Src: "10.0.0.1", IPv4Dst: "10.0.0.3", UDPDst: match.Text(fmt.Sprint(port))}}}
	class, faults := spec.Parse()
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return class
}

// add has a class provisioned.
func (x *setting) add(name string) (Info, error) {
	x.t.Helper()
	class := request(x.t, name, 7000)
	return x.Add(x.t.Context(), class)
}

// published are the kinds of events so far.
func (x *setting) published() []string {
	var out []string
	sub := x.bus.Subscribe(0)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		e, err := sub.Next(ctx)
		cancel()
		if err != nil {
			return out
		}
		out = append(out, e.Kind)
	}
}

// eventually polls until f is true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !f() {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
		<-tick.C
	}
}
