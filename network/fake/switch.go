package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

// Options describe a fake switch.
type Options struct {
	DPID openflow.DatapathID
	// Ports is the number of ports, which are numbered from 1.
	Ports int
	// Clock returns the time for timeouts; nil means time.Now.
	Clock func() time.Time
	// NoBundles and NoTableFeatures make the switch refuse the respective requests.
	NoBundles, NoTableFeatures bool
	// Tables is the number of flow tables that the switch reports as usable, numbered from 0;
	// zero means one.
	Tables int
	// Refuse, if not nil, is called for every message. If it returns an error, the switch sends
	// this error instead of handling the message.
	Refuse func(openflow.Message) *openflow.Error
	// Instead, if not nil, is called for every message. If it returns true, the switch does
	// nothing but send the returned bytes to the controller.
	Instead func(xid uint32, m openflow.Message) (answer []byte, instead bool)
	// PortStats, if not nil, returns the port counters that the switch reports, of any ports.
	PortStats func() []openflow.PortStats
	// KeepsPunt, if not nil, is called for every packet-in; if it returns true, the switch does
	// not send the packet-in.
	KeepsPunt func(*openflow.PacketIn) bool
	// OnOutput, if not nil, is called for every frame that leaves by a port. It may pass the
	// frame to another switch, which may send one back.
	OnOutput func(port uint32, frame []byte)
}

// output is a frame that leaves by a port.
type output struct {
	port  uint32
	frame []byte
}

// Switch is a fake switch. It is safe for concurrent use.
type Switch struct {
	opts  Options
	table *FlowTable

	mu           sync.Mutex
	conn         net.Conn
	out          []byte
	outbox       []output // for OnOutput, when the mutex is released
	ports        map[uint32]openflow.Port
	received     map[openflow.MsgType]int
	flows        int // flow-mods, including those in bundles
	bundles      map[uint32][]openflow.Message
	role         openflow.Role
	portCounters map[uint32]openflow.PortStats
}

// NewSwitch returns a switch that is not connected yet. It keeps its tables from one connection
// to the next.
func NewSwitch(o Options) *Switch {
	s := &Switch{
		opts: o, table: NewFlowTable(o.Clock), ports: map[uint32]openflow.Port{},
		received: map[openflow.MsgType]int{}, bundles: map[uint32][]openflow.Message{}, role: openflow.RoleEqual, portCounters: map[uint32]openflow.PortStats{},
	}
	for i := range uint32(o.Ports) {
		n := i + 1
		s.ports[n] = openflow.Port{
			Number: n, Name: fmt.Sprintf("p%d", n), State: openflow.PortStateLive, CurrSpeed: 1e6, MaxSpeed: 1e6,
			MAC: openflow.MAC{0x0e, byte(o.DPID >> 16), byte(o.DPID >> 8), byte(o.DPID), byte(n >> 8), byte(n)},
		}
	}
	return s
}

// Table returns the switch's data path.
func (s *Switch) Table() *FlowTable { return s.table }

// Count returns how many messages of a type the controller has sent.
func (s *Switch) Count(t openflow.MsgType) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.received[t]
}

// FlowMods returns how many flow modifications the controller has sent, alone or in bundles.
func (s *Switch) FlowMods() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flows
}

// Dial connects to a controller and runs until ctx or the connection ends.
func (s *Switch) Dial(ctx context.Context, addr net.Addr) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, addr.Network(), addr.String())
	if err != nil {
		return err
	}
	return s.Run(ctx, conn)
}

// Run serves a controller on conn until ctx or the connection ends.
func (s *Switch) Run(ctx context.Context, conn net.Conn) error {
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	s.mu.Lock()
	s.conn, s.out = conn, nil
	clear(s.bundles)
	s.queue(openflow.NewHello(), 0)
	err := s.flush()
	s.mu.Unlock()
	for r := openflow.NewReader(conn); err == nil; {
		err = s.batch(r)
	}
	if ctx.Err() != nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	return err
}

// Close closes the connection to the controller.
func (s *Switch) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		_ = s.conn.Close()
	}
}

func (s *Switch) batch(r *openflow.Reader) error {
	for {
		raw, err := r.Next()
		if err != nil {
			return err
		}
		h, m, err := openflow.Decode(append([]byte(nil), raw...))
		if err != nil {
			return err
		}
		done := !r.Buffered()
		s.mu.Lock()
		s.handle(h.XID, m)
		if done {
			err = s.flush()
		}
		s.unlock()
		if done {
			return err
		}
	}
}

// unlock releases the mutex and then sends the frames in the outbox: two switches that pass each
// other frames must not wait for each other's mutex.
func (s *Switch) unlock() {
	leaving := s.outbox
	s.outbox = nil
	s.mu.Unlock()
	for _, o := range leaving {
		s.opts.OnOutput(o.port, o.frame)
	}
}

// queue appends a message to the output buffer. The mutex is held.
func (s *Switch) queue(m openflow.Message, xid uint32) {
	b, err := m.AppendTo(s.out, xid)
	if err != nil {
		panic(fmt.Sprintf("fake switch: %v: %v", m.MsgType(), err)) // a mistake of this package
	}
	s.out = b
}

func (s *Switch) flush() error {
	if len(s.out) == 0 || s.conn == nil {
		s.out = s.out[:0]
		return nil
	}
	_, err := s.conn.Write(s.out)
	s.out = s.out[:0]
	return err
}

// handle handles a message of the controller. The mutex is held.
func (s *Switch) handle(xid uint32, m openflow.Message) {
	s.received[m.MsgType()]++
	if s.opts.Instead != nil {
		if answer, instead := s.opts.Instead(xid, m); instead {
			s.out = append(s.out, answer...)
			return
		}
	}
	if s.opts.Refuse != nil {
		if e := s.opts.Refuse(m); e != nil {
			s.refuse(xid, m, e)
			return
		}
	}
	switch m := m.(type) {
	case *openflow.EchoRequest:
		s.queue(&openflow.EchoReply{Data: m.Data}, xid)
	case *openflow.FeaturesRequest:
		s.queue(&openflow.FeaturesReply{DatapathID: s.opts.DPID, Tables: 254, Capabilities: 0x4f}, xid)
	case *openflow.GetConfigRequest:
		s.queue(&openflow.GetConfigReply{}, xid)
	case *openflow.BarrierRequest:
		s.queue(&openflow.BarrierReply{}, xid)
	case *openflow.RoleRequest:
		if m.Role != openflow.RoleNoChange {
			s.role = m.Role
		}
		s.queue(&openflow.RoleReply{Role: s.role, Generation: m.Generation}, xid)
	case *openflow.PacketOut:
		p := PacketOf(m.Data)
		s.send(m.InPort, s.table.Execute(m.InPort, p, m.Actions), m.Data, openflow.ReasonAction)
	case *openflow.MultipartRequest:
		s.multipart(xid, m.Body)
	case *openflow.BundleControl:
		s.bundle(xid, m)
	case *openflow.BundleAdd:
		s.bundles[m.Bundle] = append(s.bundles[m.Bundle], m.Message)
		if m.Message.MsgType() == openflow.TypeFlowMod {
			s.flows++
		}
	default:
		if m.MsgType() == openflow.TypeFlowMod {
			s.flows++
		}
		if e := s.change(m); e != nil {
			s.refuse(xid, m, e)
		}
	}
}

func (s *Switch) refuse(xid uint32, m openflow.Message, e *openflow.Error) {
	if raw, err := m.AppendTo(nil, xid); err == nil {
		e.Data = raw[:min(len(raw), 64)]
	}
	s.queue(e, xid)
}

// change applies a modification of the tables.
func (s *Switch) change(m openflow.Message) *openflow.Error {
	var gone []Removed
	var e *openflow.Error
	switch m := m.(type) {
	case *openflow.FlowMod:
		gone, e = s.table.Flow(m)
	case *openflow.GroupMod:
		gone, e = s.table.Group(m)
	case *openflow.MeterMod:
		e = s.table.Meter(m)
	}
	s.notify(gone)
	return e
}

// bundle opens, closes, commits or discards a bundle. A commit is atomic: it is tried on a copy
// of the tables first.
func (s *Switch) bundle(xid uint32, m *openflow.BundleControl) {
	if s.opts.NoBundles {
		s.refuse(xid, m, &openflow.Error{Code: openflow.BadRequestExperimenter})
		return
	}
	if m.Op == openflow.BundleCommitRequest {
		if e := s.table.dryRun(s.bundles[m.Bundle]); e != nil {
			delete(s.bundles, m.Bundle)
			s.refuse(xid, m, e)
			return
		}
		for _, c := range s.bundles[m.Bundle] {
			s.change(c)
		}
	}
	if m.Op == openflow.BundleCommitRequest || m.Op == openflow.BundleDiscardRequest {
		delete(s.bundles, m.Bundle)
	}
	s.queue(&openflow.BundleControl{Bundle: m.Bundle, Op: m.Op + 1, Flags: m.Flags}, xid)
}

// notify sends flow-removed messages for entries with the respective flag.
func (s *Switch) notify(gone []Removed) {
	for _, r := range gone {
		if r.Flags&openflow.FlagSendFlowRemoved == 0 {
			continue
		}
		s.queue(&openflow.FlowRemoved{
			Cookie: r.Cookie, Priority: r.Priority, Reason: r.Reason, Table: r.Table, IdleTimeout: r.IdleTimeout,
			HardTimeout: r.HardTimeout, Packets: r.Packets, Bytes: r.Bytes, Match: r.Match,
		}, 0)
	}
}

// Change applies a flow, group or meter modification as if another controller had sent it. The
// connected controller is notified of removed entries that have the flag for it.
func (s *Switch) Change(m openflow.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.change(m); e != nil {
		return e
	}
	return s.flush()
}

// Expire removes the entries whose timeout has passed, and notifies the controller.
func (s *Switch) Expire() error {
	gone := s.table.Expire()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notify(gone)
	return s.flush()
}

// Receive handles a frame that arrives at a port, and returns what happened to it.
func (s *Switch) Receive(port uint32, frame []byte) (Result, error) {
	s.mu.Lock()
	defer s.unlock()
	c := s.portCounters[port]
	c.RxPackets, c.RxBytes = c.RxPackets+1, c.RxBytes+uint64(len(frame))
	s.portCounters[port] = c
	r := s.table.Send(port, PacketOf(frame))
	s.send(port, r, frame, openflow.ReasonNoMatch)
	return r, s.flush()
}

// send sends the outputs of a result.
func (s *Switch) send(inPort uint32, r Result, frame []byte, reason uint8) {
	for _, o := range r.Outputs {
		switch {
		case o.Port == openflow.PortController:
			in := &openflow.PacketIn{BufferID: openflow.NoBuffer, TotalLen: uint16(len(frame)), Reason: reason, InPort: inPort, Data: frame}
			if n := len(r.Entries); n > 0 {
				in.Cookie, in.Table = r.Entries[n-1].Cookie, r.Entries[n-1].Table
				if r.Entries[n-1].Priority > 0 {
					in.Reason = openflow.ReasonAction
				}
			}
			if s.opts.KeepsPunt == nil || !s.opts.KeepsPunt(in) {
				s.queue(in, 0)
			}
		case o.Port == openflow.PortInPort:
			s.sendOut(inPort, rewriteFrame(frame, o.Packet))
		case o.Port <= openflow.PortMax && o.Port != inPort:
			s.sendOut(o.Port, rewriteFrame(frame, o.Packet))
		}
	}
}

// sendOut sends a frame out of a port, and counts it.
func (s *Switch) sendOut(port uint32, frame []byte) {
	c := s.portCounters[port]
	c.TxPackets, c.TxBytes = c.TxPackets+1, c.TxBytes+uint64(len(frame))
	s.portCounters[port] = c
	if s.opts.OnOutput != nil {
		s.outbox = append(s.outbox, output{port, frame})
	}
}

// SetPort sets a port up or down, and notifies the controller.
func (s *Switch) SetPort(number uint32, up bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.ports[number]
	if !ok {
		return fmt.Errorf("fake switch %v has no port %d", s.opts.DPID, number)
	}
	p.State = openflow.PortStateLinkDown
	if up {
		p.State = openflow.PortStateLive
	}
	s.ports[number] = p
	s.queue(&openflow.PortStatus{Reason: openflow.PortModified, Port: p}, 0)
	return s.flush()
}

// Write sends raw bytes to the controller.
func (s *Switch) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return 0, net.ErrClosed
	}
	return s.conn.Write(b)
}
