package latency

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/ovsdb"
)

// DatabaseOwner is the name that rows of this service bear in the databases.
const DatabaseOwner = "sluice-qos"

// retryInterval is the time after which a database that has refused is asked again.
const retryInterval = 5 * time.Second

// client is the part of an ovsdb.Client that is needed.
type client interface {
	Run(context.Context) error
	Target() string
	Err() error
	State() (*ovsdb.State, <-chan struct{})
	WaitBridge(context.Context, uint64) (ovsdb.Bridge, error)
	Apply(context.Context, uint64, map[uint32]ovsdb.Root) (ovsdb.Change, error)
}

// database keeps one switch's queues as they are wanted. What is wanted is asked for
// each time anew, so many changes at once are one transaction.
type database struct {
	dpid   openflow.DatapathID
	client client
	want   func(openflow.DatapathID, ovsdb.Bridge) (map[uint32]ovsdb.Root, bool)
	// seen is called with what the database holds.
	seen func(openflow.DatapathID, ovsdb.Bridge)

	mu      sync.Mutex
	asked   uint64 // changes asked for
	done    uint64 // the last of them that is carried out, or has failed
	err     error
	dirty   chan struct{}
	changed chan struct{} // closed when done or err change
	cancel  context.CancelFunc

	// gone is since when the switch is not connected. The service's lock guards it.
	gone time.Time
}

// forgetAfter is how long the database of a switch is kept that is not connected.
const forgetAfter = 5 * time.Minute

// errEnded says that a switch's database is not looked after any more.
var errEnded = errors.New("its database has been given up")

// run keeps the queues until ctx ends.
func (d *database) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer d.finish(math.MaxUint64, errEnded)
	wg.Go(func() { _ = d.client.Run(ctx) }) // ends with ctx
	for {
		_, changed := d.client.State()
		d.mu.Lock()
		asked := d.asked
		d.mu.Unlock()
		d.finish(asked, d.apply(ctx))
		retry := time.NewTimer(retryInterval)
		select {
		case <-ctx.Done():
			retry.Stop()
			return
		case <-d.dirty:
		case <-changed:
		case <-retry.C:
		}
		retry.Stop()
	}
}

func (d *database) apply(ctx context.Context) error {
	if err := d.client.Err(); err != nil {
		return err
	}
	now, _ := d.bridge()
	want, known := d.want(d.dpid, now)
	if !known {
		return fmt.Errorf("switch %v is not connected", d.dpid)
	}
	d.seen(d.dpid, now)
	withhold(want, now)
	_, err := d.client.Apply(ctx, uint64(d.dpid), want)
	return err
}

// bridge is the switch as its database holds it, empty while that is not known, and a
// channel that is closed when it may be different.
func (d *database) bridge() (b ovsdb.Bridge, changed <-chan struct{}) {
	state, changed := d.client.State()
	if state != nil {
		b, _ = state.Bridge(uint64(d.dpid))
	}
	return b, changed
}

// ours is the discipline that a port has from us, nil if it has none.
func ours(b ovsdb.Bridge, port uint32) *ovsdb.QoS {
	if p, _ := b.Port(port); p.QoS != nil && p.QoS.Ours {
		return p.QoS
	}
	return nil
}

func (d *database) finish(asked uint64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done, d.err = asked, err
	close(d.changed)
	d.changed = make(chan struct{})
}

// touch has the queues looked at again.
func (d *database) touch() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	select {
	case d.dirty <- struct{}{}:
	default:
	}
	return d.asked
}

// ensure returns when the queues are as they were wanted when it was called. Of other
// ports than those that are named it does not matter if they cannot be given theirs.
func (d *database) ensure(ctx context.Context, ports []uint32) error {
	turn := d.touch()
	for {
		d.mu.Lock()
		done, err, changed := d.done, concerning(d.err, ports), d.changed
		d.mu.Unlock()
		switch {
		case done >= turn && err == nil:
			return nil
		case done >= turn && !errors.Is(err, ovsdb.ErrDown):
			return fmt.Errorf("queues of switch %v: %w", d.dpid, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("queues of switch %v: %w", d.dpid, errors.Join(err, context.Cause(ctx)))
		case <-changed:
		}
	}
}

// concerning is the part of an error that is not about other ports only.
func concerning(err error, ports []uint32) error {
	var single ovsdb.PortErrors
	if !errors.As(err, &single) {
		return err
	}
	var errs []error
	for _, p := range ports {
		errs = append(errs, single[p])
	}
	return errors.Join(errs...)
}

// userspace says whether the switch forwards in user space; an error while that is
// not known.
func (d *database) userspace(ctx context.Context) (bool, error) {
	b, err := d.client.WaitBridge(ctx, uint64(d.dpid))
	return b.Datapath == ovsdb.Userspace, err
}

// connectDatabases has a database for each connected switch, and for no other for long.
func (s *Service) connectDatabases() {
	up := s.net.Datapaths()
	s.forgetDatabases(up, time.Now())
	for _, d := range up {
		target, err := s.settings.Target(d, s.net.Address(d))
		if err == nil {
			err = s.connectDatabase(d, target)
		}
		s.mu.Lock()
		if err != nil && s.unknown[d] == nil {
			s.log.Warn("no queues on a switch", "switch", d, "error", err)
		}
		s.unknown[d] = err
		s.mu.Unlock()
	}
}

// forgetDatabases gives up those of switches that have long not been connected.
func (s *Service) forgetDatabases(up []openflow.DatapathID, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for d, db := range s.databases {
		switch {
		case slices.Contains(up, d):
			db.gone = time.Time{}
		case db.gone.IsZero():
			db.gone = now
		case now.Sub(db.gone) > forgetAfter:
			db.cancel()
			delete(s.databases, d)
			delete(s.unknown, d)
		}
	}
}

func (s *Service) connectDatabase(d openflow.DatapathID, target string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.databases[d]
	if old != nil && old.client.Target() == target {
		old.touch()
		return nil
	}
	client, err := s.open(ovsdb.Options{Target: target, TLS: s.settings.TLS, Owner: DatabaseOwner, Log: s.log})
	if err != nil {
		return err
	}
	if old != nil {
		old.cancel()
	}
	ctx, cancel := context.WithCancel(s.tasks.Context())
	db := &database{dpid: d, client: client, want: s.wanted, seen: s.probesBy, dirty: make(chan struct{}, 1), changed: make(chan struct{}), cancel: cancel}
	s.databases[d] = db
	if !s.tasks.Start(func(context.Context) { defer cancel(); db.run(ctx) }) {
		cancel()
		db.finish(math.MaxUint64, errEnded)
	}
	return nil
}

// databaseOf is the database of a switch.
func (s *Service) databaseOf(d openflow.DatapathID) (*database, error) {
	s.mu.Lock()
	known := s.databases[d] != nil
	s.mu.Unlock()
	if !known {
		s.connectDatabases() // it may have connected a moment ago
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if db := s.databases[d]; db != nil {
		return db, nil
	}
	if err := s.unknown[d]; err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("switch %v is not connected", d)
}

// bySwitch groups ports.
func bySwitch(ports []place) map[openflow.DatapathID][]uint32 {
	out := map[openflow.DatapathID][]uint32{}
	for _, p := range ports {
		out[p.Switch] = append(out[p.Switch], p.Port)
	}
	return out
}

// ensureQueues returns when the queues of all switches are as wanted, at least at the
// ports that are named.
func (s *Service) ensureQueues(ctx context.Context, ports map[openflow.DatapathID][]uint32) error {
	errs := make([]error, len(ports))
	var wg sync.WaitGroup
	for i, d := range slices.Sorted(maps.Keys(ports)) {
		wg.Go(func() {
			db, err := s.databaseOf(d)
			if err == nil {
				err = db.ensure(ctx, ports[d])
			}
			errs[i] = err
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// probesBy tells the network at which ports of a bridge probes have a queue of their own.
func (s *Service) probesBy(d openflow.DatapathID, b ovsdb.Bridge) {
	for _, p := range b.Ports {
		queue := uint32(0)
		if q := ours(b, p.Number); q != nil && slices.ContainsFunc(q.Queues, func(q ovsdb.Queue) bool { return q.ID == probeQueue }) {
			queue = probeQueue
		}
		s.net.SetProbeQueue(portRef(d, p.Number), queue)
	}
}

// wanted are the disciplines of a switch, false while it is not connected. now is what its
// database holds: the bucket of a port that is down and tells no speed stays as it is.
func (s *Service) wanted(d openflow.DatapathID, now ovsdb.Bridge) (map[uint32]ovsdb.Root, bool) {
	ports, ok := s.net.PortNumbers(d)
	if !ok {
		return nil, false
	}
	capacities := map[uint32]uint64{}
	for _, number := range ports {
		capacity := s.net.Capacity(portRef(d, number))
		if q := ours(now, number); q != nil && capacity == 0 {
			capacity = q.Rate
		}
		capacities[number] = capacity
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	leaves := map[uint32][]ovsdb.Queue{}
	for _, c := range s.sortedClasses() {
		if c.routes == nil {
			continue
		}
		for _, at := range c.held() {
			if at.Switch != d {
				continue
			}
			var marked *uint8
			if c.userspace[d] {
				m := c.mark
				marked = &m
			}
			leaves[at.Port] = append(leaves[at.Port], leaf(&c.class, c.queue, s.ratesOf(c, capacities[at.Port]), marked, c.own))
		}
	}
	if !s.settings.OnConnect {
		maps.DeleteFunc(capacities, func(port uint32, _ uint64) bool { return len(leaves[port]) == 0 })
	}
	return roots(capacities, leaves), true
}
