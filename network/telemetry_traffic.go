package network

import (
	"net"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/network/stats"
)

// Traffic holds the measurements of the network's traffic.
type Traffic struct {
	interval  time.Duration // between readings of counters
	began     time.Time     // reference time of the readings
	rates     *stats.Table
	history   *stats.History
	snapshots *snapshots
	sflow     sflowReceiver
}

// historySpan is how long the measurements of links are kept.
const historySpan = time.Hour

func newTraffic(c *Config, switches *registry, s *snapshots) Traffic {
	rates := stats.New(stats.Options{Interval: c.StatsInterval})
	return Traffic{
		interval: c.StatsInterval, began: time.Now(), rates: rates, history: stats.NewHistory(historySpan, c.StatsInterval), snapshots: s,
		sflow: sflowReceiver{switches: switches, rates: rates, log: c.Log, talkers: stats.NewTalkers(), portsByIndex: map[netip.Addr]map[uint32]PortRef{}},
	}
}

// Traffic returns the measurements of the network's traffic.
func (n *Network) Traffic() *Traffic { return &n.traffic }

// Port returns the latest measured traffic of a port.
func (t *Traffic) Port(at PortRef) (stats.Rate, bool) { return t.rates.Rate(at) }

// PortBy returns the latest traffic of a port from one source of measurements.
func (t *Traffic) PortBy(at PortRef, by stats.Source) (stats.Rate, bool) {
	return t.rates.RateBy(at, by)
}

// Link returns the latest measured load and loss of a link.
func (t *Traffic) Link(l Link) stats.Load { return t.rates.Load(l) }

// LinkHistory returns the measurements of the link that leaves by a port since a time, for at most
// the last hour.
func (t *Traffic) LinkHistory(from PortRef, since time.Time) []stats.Track {
	return t.history.Since(from, since)
}

// Talkers returns at most limit conversations that use the network most, according to packet
// samples. It returns only conversations for which of returns true, and none unless sFlow is
// received.
func (t *Traffic) Talkers(limit int, of func(stats.Conversation) bool) []stats.Talker {
	return t.sflow.talkers.Top(limit, time.Now(), of)
}

// PushStats returns the counters of the sFlow receiver.
func (t *Traffic) PushStats() PushStats { return t.sflow.counters.read() }

// SFlowAddr returns the address where sFlow is received, or nil.
func (t *Traffic) SFlowAddr() net.Addr {
	if t.sflow.conn == nil {
		return nil
	}
	return t.sflow.conn.LocalAddr()
}

// untilReading returns the time until the next reading of all switches' counters.
func (t *Traffic) untilReading() time.Duration {
	return t.interval - time.Since(t.began)%t.interval
}

// untilRecord returns the time until record is called next: when the replies of the next reading
// should have arrived.
func (t *Traffic) untilRecord() time.Duration {
	until := t.untilReading() + min(t.interval/2, time.Second)
	if until > t.interval {
		until -= t.interval
	}
	return until
}

// record stores the current measurements in the topology and the history.
func (t *Traffic) record(now time.Time) {
	t.rates.CompareEnds(t.snapshots.topo.Load().Links)
	t.snapshots.rebuild()
	t.history.Record(now, t.snapshots.topo.Load().Links, t.rates.Load)
}
