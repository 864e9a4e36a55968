package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/internal/lograte"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/sflow"
	"github.com/sluice-net/sluice/network/stats"
	"github.com/sluice-net/sluice/openflow"
)

// sflowReceiver receives the counters and packet samples that switches send by sFlow. Anybody can
// send such datagrams, so a reading counts only if it comes from the address of the switch's own
// OpenFlow connection.
type sflowReceiver struct {
	conn       net.PacketConn // nil if sFlow is not received
	switches   *registry
	rates      *stats.Table
	log        *slog.Logger
	logLimiter lograte.Limit
	counters   sflowCounters
	talkers    *stats.Talkers
	// portsByIndex holds the ports by the sender's address and ifIndex, as accepted counters have
	// named them. Bridges on one machine share the address and the numbering.
	portsByIndex map[netip.Addr]map[uint32]PortRef
}

// maxPortsPerSender bounds the ports that are remembered of one sender, because an ifIndex is not
// used again after its port is gone.
const maxPortsPerSender = 4096

type sflowCounters struct {
	datagrams, failed, malformed, refused atomic.Uint64
}

// PushStats counts the received sFlow datagrams, and those that were not used.
type PushStats struct {
	Datagrams uint64
	// Failed counts errors of the socket, for instance when the machine has no memory for a
	// datagram.
	Failed uint64
	// Malformed counts datagrams that could not be read. Refused counts readings that came from
	// another address than the switch's OpenFlow connection, or of switches without one.
	Malformed, Refused uint64
}

func (c *sflowCounters) read() PushStats {
	return PushStats{Datagrams: c.datagrams.Load(), Failed: c.failed.Load(), Malformed: c.malformed.Load(), Refused: c.refused.Load()}
}

// listen opens the receiver.
func (r *sflowReceiver) listen(c *Config) (err error) {
	if r.conn = c.SFlowConn; r.conn != nil || c.Measure == MeasurePoll {
		return nil
	}
	if r.conn, err = net.ListenPacket("udp", c.SFlow); err != nil {
		return fmt.Errorf("listening for sFlow on %s: %w", c.SFlow, err)
	}
	return nil
}

// sflowRetryDelay is the wait after an error, so that a lasting error does not keep a processor
// busy.
const sflowRetryDelay = 50 * time.Millisecond

// receive handles datagrams one at a time until ctx ends. Datagrams that arrive too fast wait in
// the socket, and those that do not fit there are lost. Only a closed socket ends receiving; other
// errors concern one datagram, or the machine's present state.
func (r *sflowReceiver) receive(ctx context.Context) error {
	b := make([]byte, 1<<16)
	var d sflow.Datagram
	for {
		size, from, err := r.conn.ReadFrom(b)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("receiving sFlow: %w", err)
		case err != nil:
			r.counters.failed.Add(1)
			r.logLimiter.Warn(r.log, "receiving sFlow", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(sflowRetryDelay):
			}
		default:
			r.handleDatagram(from, b[:size], &d)
		}
	}
}

// handleDatagram handles one datagram, which it parses into d.
func (r *sflowReceiver) handleDatagram(from net.Addr, b []byte, d *sflow.Datagram) {
	now := time.Now()
	r.counters.datagrams.Add(1)
	if err := d.Parse(b); err != nil {
		r.counters.malformed.Add(1)
		r.logLimiter.Warn(r.log, "malformed sFlow datagram", "from", from, "error", err)
		return
	}
	sender := hostOf(from)
	for i := range d.Counters {
		if err := r.handleCounters(sender, now, &d.Counters[i]); err != nil {
			r.counters.refused.Add(1)
			if !errors.Is(err, ErrSwitchDown) { // it may connect soon
				r.logLimiter.Warn(r.log, "sFlow counters refused", "from", from, "error", err)
			}
		}
	}
	for i := range d.Packets {
		r.handleSample(sender, now, &d.Packets[i])
	}
}

// reservedPort reports whether a number is reserved and stands for no ordinary port. Open vSwitch
// uses the reserved numbers of OpenFlow 1.0, which have 16 bits, and has no ordinary ports in their
// range.
func reservedPort(n uint32) bool { return n > openflow.PortMax || n > 0xff00 && n <= 0xffff }

// handleCounters handles the counters of one port.
func (r *sflowReceiver) handleCounters(sender netip.Addr, now time.Time, c *sflow.Counters) error {
	if !c.Known || reservedPort(c.Port.Port) {
		return nil // not an interface, or the switch's own
	}
	if c.Port.IsZero() {
		return errors.New("the sender does not say which OpenFlow port its counters are of")
	}
	s, err := r.switches.mustBeUp(c.Port.Switch)
	if err != nil {
		return err
	}
	if sender != hostOf(s.RemoteAddr()) {
		return fmt.Errorf("switch %v is connected from %v", s.dpid, s.RemoteAddr())
	}
	if _, ok := s.Port(c.Port.Port); !ok {
		return fmt.Errorf("switch %v has no port %d", s.dpid, c.Port.Port)
	}
	r.rates.Observe(stats.Sample{Port: c.Port, Source: stats.Pushed, Sent: now, Received: now, Counters: c.Counters})
	if ports := r.portsByIndex[sender]; ports == nil || len(ports) >= maxPortsPerSender {
		r.portsByIndex[sender] = map[uint32]PortRef{}
	}
	r.portsByIndex[sender][c.Index] = c.Port
	return nil
}

// handleSample handles a sampled packet. The sample counts only if its port is known from accepted
// counters.
func (r *sflowReceiver) handleSample(sender netip.Addr, now time.Time, p *sflow.Packet) {
	at, ok := r.portsByIndex[sender][p.In]
	if !ok {
		return
	}
	var h packet.Headers
	_ = h.Parse(p.Header) // headers that could be parsed are usable even after an error
	r.talkers.Take(at, &h, p.Length, p.Rate, now)
}

// hostOf returns the address without its port.
func hostOf(a net.Addr) netip.Addr {
	if ap, err := netip.ParseAddrPort(a.String()); err == nil {
		return ap.Addr().Unmap()
	}
	return netip.Addr{}
}
