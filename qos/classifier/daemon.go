package classifier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/ovsdb"
	"github.com/sluice-net/sluice/qos/mark"
)

// DefaultDatabase is where packages put the local database's socket.
const DefaultDatabase = "unix:/var/run/openvswitch/db.sock"

// How often the kernel is compared with the database. Open vSwitch carries out a
// change a few milliseconds after it is in the database, and tells nobody.
const (
	soon    = 20 * time.Millisecond
	patient = 2 * time.Second // how long it is looked at that often
	usually = time.Second
)

// waiting is how much may wait in one queue, as time of its link.
const waiting = 20 * time.Millisecond

// Bounds of a queue in packets.
const (
	leastPackets = 4
	mostPackets  = 1000
	// probePackets may wait in the queue of probes: there is seldom more than one.
	probePackets = 8
	// packetMemory is what a full-sized packet takes of its send socket's buffer.
	packetMemory = 2304
)

// Options is what a Daemon is made from.
type Options struct {
	// Database is the local one's socket, see ovsdb.CheckTarget.
	Database string
	Log      *slog.Logger
}

// Daemon keeps the classifiers of one network namespace.
type Daemon struct {
	client *ovsdb.Client
	log    *slog.Logger
	socket uint64 // bytes of the send socket
	limits map[leafAt]uint32
	told   map[string]string // faults by port
}

// New returns a daemon that does nothing until Run.
func New(o Options) (*Daemon, error) {
	if !strings.HasPrefix(o.Database, "unix:") {
		return nil, fmt.Errorf("classifier: database %q: want the local one's socket, like %s", o.Database, DefaultDatabase)
	}
	client, err := ovsdb.New(ovsdb.Options{Target: o.Database, Log: o.Log})
	if err != nil {
		return nil, fmt.Errorf("classifier: %w", err)
	}
	return &Daemon{client: client, log: o.Log, socket: sendBuffer(), limits: map[leafAt]uint32{}, told: map[string]string{}}, nil
}

// sendBuffer is the size of the switch's send socket.
func sendBuffer() uint64 {
	text, _ := os.ReadFile("/proc/sys/net/core/wmem_default")
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 212992 // the kernel's own
	}
	return n
}

// Run keeps the classifiers until ctx ends. They stay, and go with their queues.
func (d *Daemon) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { _ = d.client.Run(ctx) }) // ends with ctx
	var seen *ovsdb.State
	since := time.Now()
	for ctx.Err() == nil {
		state, changed := d.client.State()
		if state != seen {
			seen, since = state, time.Now()
		}
		pause := usually
		if state != nil && d.sync(ctx, state) && time.Since(since) < patient {
			pause = soon
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// sync brings the kernel in line with the database, and tells the database what the
// kernel holds. It reports whether something was not there yet.
func (d *Daemon) sync(ctx context.Context, state *ovsdb.State) (again bool) {
	k, err := readKernel()
	if err != nil {
		d.tell("", err)
		return true
	}
	d.tell("", nil)
	maps.DeleteFunc(d.limits, func(at leafAt, _ uint32) bool { return !k.leaves[at] })
	for _, b := range state.Bridges {
		if b.Datapath != ovsdb.Userspace {
			continue // there set_queue alone is enough
		}
		for _, p := range b.Ports {
			if p.QoS == nil || p.QoS.Type != ovsdb.TypeHTB {
				continue
			}
			installed, err := d.port(k, p)
			if known := mark.List(installed.Marks); known != p.QoS.Tags[mark.TagKnown] {
				err = errors.Join(err, d.client.SetTag(ctx, p, mark.TagKnown, known))
			}
			again = again || errors.Is(err, errNotYet)
			d.tell(p.Name, err)
		}
	}
	return again
}

// tell logs a fault once, of a port or, without a name, of the kernel.
func (d *Daemon) tell(port string, err error) {
	text := ""
	if err != nil && !errors.Is(err, errNotYet) {
		text = err.Error()
	}
	if text != d.told[port] && text != "" {
		d.log.Error("classifier", "port", port, "error", err)
	}
	d.told[port] = text
	if text == "" {
		delete(d.told, port)
	}
}

// port sees to one port. It returns what its filter does now.
func (d *Daemon) port(k *kernel, p ovsdb.Port) (installed Table, err error) {
	t, err := tableOf(p.QoS)
	if err != nil {
		return Table{}, err
	}
	link, err := netlink.LinkByName(p.Name)
	if err != nil {
		return Table{}, fmt.Errorf("interface %s: %w", p.Name, errNotYet)
	}
	if !k.buckets[link.Attrs().Index] {
		return Table{}, fmt.Errorf("interface %s has no bucket: %w", p.Name, errNotYet)
	}
	if err := classify(link, t); err != nil {
		return Table{}, err
	}
	if p.QoS.Owner() == "" {
		return t, nil // somebody else's queues are theirs to bound
	}
	return t, d.boundAll(k, link, p.QoS, t)
}

// boundAll bounds the queues of a port's classes.
func (d *Daemon) boundAll(k *kernel, link netlink.Link, qos *ovsdb.QoS, t Table) error {
	others := len(qos.Queues)
	if t.Probes != 0 {
		others--
	}
	for _, q := range qos.Queues {
		limit := d.limit(qos.Rate, others)
		if t.Probes != 0 && q.ID == t.Probes {
			limit = probePackets
		}
		at := leafAt{link.Attrs().Index, classOf(q.ID)}
		if k.leaves[at] && d.limits[at] == limit {
			continue
		}
		if err := bound(link, at.class, limit); err != nil {
			return err
		}
		d.limits[at] = limit
	}
	return nil
}

// limit is how many packets may wait in each of a port's queues: what the link takes
// a moment for, but no more than the send socket holds for all of them.
func (d *Daemon) limit(rate uint64, queues int) uint32 {
	const full = 8 * 1514
	byTime := uint64(waiting.Seconds()*float64(rate)/full) + leastPackets
	bySocket := d.socket * 4 / 5 / packetMemory / uint64(max(queues, 1))
	return uint32(min(max(min(byTime, bySocket), leastPackets), mostPackets))
}
