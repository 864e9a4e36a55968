package network

import (
	"net"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/network/stats"
)

// Traffic is what has been measured of the network's traffic.
type Traffic struct {
	interval  time.Duration // between readings of counters
	began     time.Time     // what readings are timed by
	rates     *stats.Table
	history   *stats.History
	snapshots *snapshots
	sflow     sflowReceiver
}

// historySpan is how far back the measurements of links are remembered.
const historySpan = time.Hour

func newTraffic(c *Config, switches *registry, s *snapshots) Traffic {
	rates := stats.New(stats.Options{Interval: c.StatsInterval})
	return Traffic{
		interval: c.StatsInterval, began: time.Now(), rates: rates, history: stats.NewHistory(historySpan, c.StatsInterval), snapshots: s,
		sflow: sflowReceiver{switches: switches, rates: rates, log: c.Log, talkers: stats.NewTalkers(), portsByIndex: map[netip.Addr]map[uint32]PortRef{}},
	}
}

// Traffic is what has been measured of the network's traffic.
func (n *Network) Traffic() *Traffic { return &n.traffic }

// Port is the latest measured traffic of a port.
func (t *Traffic) Port(at PortRef) (stats.Rate, bool) { return t.rates.Rate(at) }

// PortBy is the latest traffic of a port that one source has measured.
func (t *Traffic) PortBy(at PortRef, by stats.Source) (stats.Rate, bool) {
	return t.rates.RateBy(at, by)
}

// Link is what was measured last of what a link carries and loses.
func (t *Traffic) Link(l Link) stats.Load { return t.rates.Load(l) }

// LinkHistory is what was measured since a time of the link that leaves by a port,
// within the last hour.
func (t *Traffic) LinkHistory(from PortRef, since time.Time) []stats.Track {
	return t.history.Since(from, since)
}

// Talkers are the conversations that use the network most, by samples of packets, of
// those that are of interest. There are none unless sFlow is received.
func (t *Traffic) Talkers(limit int, of func(stats.Conversation) bool) []stats.Talker {
	return t.sflow.talkers.Top(limit, time.Now(), of)
}

// PushStats reads the counters of the sFlow receiver.
func (t *Traffic) PushStats() PushStats { return t.sflow.counters.read() }

// SFlowAddr is where sFlow is received, nil if it is not.
func (t *Traffic) SFlowAddr() net.Addr {
	if t.sflow.conn == nil {
		return nil
	}
	return t.sflow.conn.LocalAddr()
}

// untilReading is the time until all switches are asked for their counters again.
func (t *Traffic) untilReading() time.Duration {
	return t.interval - time.Since(t.began)%t.interval
}

// untilRecord is the time until the answers to the next reading should all be in.
func (t *Traffic) untilRecord() time.Duration {
	until := t.untilReading() + min(t.interval/2, time.Second)
	if until > t.interval {
		until -= t.interval
	}
	return until
}

// record brings what has been measured into the topology and the history.
func (t *Traffic) record(now time.Time) {
	t.rates.CompareEnds(t.snapshots.topo.Load().Links)
	t.snapshots.rebuild()
	t.history.Record(now, t.snapshots.topo.Load().Links, t.rates.Load)
}
