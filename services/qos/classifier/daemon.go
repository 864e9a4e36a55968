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

	"github.com/sluice-net/sluice/internal/drift"
	"github.com/sluice-net/sluice/ovsdb"
	"github.com/sluice-net/sluice/services/qos/mark"
)

// DefaultDatabase is the socket of the local database at the path that distribution packages use.
const DefaultDatabase = "unix:/var/run/openvswitch/db.sock"

// These are the intervals at which the kernel is compared with the database. Open vSwitch
// applies a change a few milliseconds after it is in the database, without a notification.
const (
	fastPoll     = 20 * time.Millisecond
	fastPollTime = 2 * time.Second // how long fastPoll is used after a change of the database
	pollInterval = time.Second
)

// maxQueueDelay bounds the packets in one queue, as the time that their link takes to send them.
const maxQueueDelay = 20 * time.Millisecond

// These are limits of a queue's length, in packets.
const (
	minPackets = 4
	maxPackets = 1000
	// probePackets is the limit of the queue of link probes, which seldom holds more than one
	// packet.
	probePackets = 8
	// packetMemory is the memory, in bytes, that a full-sized packet takes in the send socket's
	// buffer.
	packetMemory = 2304
)

// Options holds what New needs.
type Options struct {
	// Database is the local database's socket; see ovsdb.CheckTarget.
	Database string
	// Drift records the filters and queues that had gone and were set up again.
	Drift *drift.Counts
	Log   *slog.Logger
}

// Daemon keeps the classifier filters of one network namespace up to date.
type Daemon struct {
	client       *ovsdb.Client
	log          *slog.Logger
	drift        *drift.Counts
	socket       uint64 // size of the send socket's buffer, in bytes
	limits       map[leafAt]leafLimit
	loggedFaults map[string]string // faults logged, by port
}

// leafLimit is the limit of a leaf's queue, and when it was set.
type leafLimit struct {
	packets uint32
	set     time.Time
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
	return &Daemon{client: client, log: o.Log, drift: o.Drift, socket: sendBuffer(), limits: map[leafAt]leafLimit{}, loggedFaults: map[string]string{}}, nil
}

// sendBuffer returns the size of the buffer of the switch's send socket, in bytes.
func sendBuffer() uint64 {
	text, _ := os.ReadFile("/proc/sys/net/core/wmem_default")
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 212992 // the kernel's default
	}
	return n
}

// Run keeps the classifier filters up to date until ctx ends. The filters stay installed, and
// disappear with their queues.
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
		pause, settled := pollInterval, time.Since(since) > fastPollTime
		if state != nil && d.sync(ctx, state, settled) && !settled {
			pause = fastPoll
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

// sync updates the kernel from the database, and writes into the database what the kernel holds. It
// reports whether Open vSwitch has yet to create something that the database asks for, so that sync
// has to be called again. settled reports whether the database has not changed lately, so that what
// is missing was removed.
func (d *Daemon) sync(ctx context.Context, state *ovsdb.State, settled bool) (again bool) {
	k, err := readKernel()
	if err != nil {
		d.logFault("", err)
		return true
	}
	d.logFault("", nil)
	maps.DeleteFunc(d.limits, func(at leafAt, _ leafLimit) bool { return !k.leaves[at] })
	for _, b := range state.Bridges {
		if b.Datapath != ovsdb.Userspace {
			continue // in a kernel datapath set_queue alone is enough
		}
		for _, p := range b.Ports {
			if p.QoS == nil || p.QoS.Type != ovsdb.TypeHTB {
				continue
			}
			installed, restored, err := d.syncPort(k, p)
			if settled && restored > 0 {
				d.drift.Record("classes of "+p.Name, restored, err, time.Now())
			}
			if known := mark.List(installed.Marks); known != p.QoS.Tags[mark.TagKnown] {
				err = errors.Join(err, d.client.SetTag(ctx, p, mark.TagKnown, known))
			}
			again = again || errors.Is(err, errNotYet)
			d.logFault(p.Name, err)
		}
	}
	return again
}

// logFault logs a fault of a port once, unless it is errNotYet. An empty port stands for the
// kernel.
func (d *Daemon) logFault(port string, err error) {
	text := ""
	if err != nil && !errors.Is(err, errNotYet) {
		text = err.Error()
	}
	if text != d.loggedFaults[port] && text != "" {
		d.log.Error("classifier", "port", port, "error", err)
	}
	d.loggedFaults[port] = text
	if text == "" {
		delete(d.loggedFaults, port)
	}
}

// syncPort updates one port in the kernel. It returns the table of its filter, and the number of
// filters and queues that it has set up.
func (d *Daemon) syncPort(k *kernel, p ovsdb.Port) (installed Table, added int, err error) {
	t, err := tableOf(p.QoS)
	if err != nil {
		return Table{}, 0, err
	}
	link, err := netlink.LinkByName(p.Name)
	if err != nil {
		return Table{}, 0, fmt.Errorf("interface %s: %w", p.Name, errNotYet)
	}
	if !k.buckets[link.Attrs().Index] {
		return Table{}, 0, fmt.Errorf("interface %s has no bucket: %w", p.Name, errNotYet)
	}
	classified, err := classify(link, t)
	if err != nil {
		return Table{}, 0, err
	}
	if classified {
		added++
	}
	if p.QoS.Owner() == "" {
		return t, added, nil // foreign queues keep the limits that their owner sets
	}
	queues, err := d.setLimits(k, link, p.QoS, t)
	return t, added + queues, err
}

// setLimits sets the limits of the queues of a port's classes, and returns the number of queues that
// did not exist. It sets each limit again at times, because the kernel does not tell of changes.
func (d *Daemon) setLimits(k *kernel, link netlink.Link, qos *ovsdb.QoS, t Table) (added int, err error) {
	others := len(qos.Queues)
	if t.Probes != 0 {
		others--
	}
	for _, q := range qos.Queues {
		limit := d.queueLimit(qos.Rate, others)
		if t.Probes != 0 && q.ID == t.Probes {
			limit = probePackets
		}
		at := leafAt{link.Attrs().Index, classOf(q.ID)}
		if known := d.limits[at]; k.leaves[at] && known.packets == limit && time.Since(known.set) < drift.DefaultInterval {
			continue
		}
		if err := setLimit(link, at.class, limit); err != nil {
			return added, err
		}
		if !k.leaves[at] {
			added++
		}
		d.limits[at] = leafLimit{limit, time.Now()}
	}
	return added, nil
}

// queueLimit returns the number of packets that may wait in each of a port's queues: the packets
// that the link sends in maxQueueDelay, but no more than the send socket holds for all queues.
func (d *Daemon) queueLimit(rate uint64, queues int) uint32 {
	const full = 8 * 1514
	byTime := uint64(maxQueueDelay.Seconds()*float64(rate)/full) + minPackets
	bySocket := d.socket * 4 / 5 / packetMemory / uint64(max(queues, 1))
	return uint32(min(max(min(byTime, bySocket), minPackets), maxPackets))
}
