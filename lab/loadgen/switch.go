package loadgen

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

var be = binary.BigEndian

// loader is one switch that generates load. It belongs to one goroutine.
type loader struct {
	opts  *Options
	index int
	dpid  openflow.DatapathID
	conn  net.Conn
	r     *openflow.Reader
	out   []byte

	template []byte // a packet-in whose fields are overwritten
	at       offsets
	random   uint64
	next     uint64 // sequence number of the next packet-in
	answered uint64 // the highest sequence number that came back, plus one

	count struct{ sent, answered, flowMods, reordered uint64 }
	sent  map[uint64]time.Time // when the sampled packets were sent, by sequence number
	rtts  []time.Duration
	ready bool // the controller has asked for the switch's features
}

// offsets holds the places in the template that vary.
type offsets struct{ inPort, frame, seq int }

// inPortAt is the offset of the number of the ingress port in a packet-in: after the message's
// header, its fixed part, and the headers of the match and of the field.
const inPortAt = 8 + 16 + 4 + 4

// The round-trip time of one in sampleEvery packets is measured, or of every packet if the window
// is 1, up to maxSamples of each switch.
const (
	sampleEvery = 16
	maxSamples  = 20000
)

func newLoader(o *Options, index int, conn net.Conn) *loader {
	l := &loader{
		opts: o, index: index, dpid: openflow.DatapathID(o.FirstDPID + uint64(index)), conn: conn,
		r: openflow.NewReader(conn), random: uint64(index)*0x9e3779b97f4a7c15 + 1, sent: map[uint64]time.Time{},
	}
	frame := packet.AppendTCP(nil, packet.Frame{}, packet.TCPSegment{
		Src: netip.MustParseAddrPort("10.0.0.1:1"), Dst: netip.MustParseAddrPort("10.0.0.2:2"), Flags: packet.ACK, Payload: make([]byte, 8),
	})
	in := &openflow.PacketIn{BufferID: openflow.NoBuffer, TotalLen: uint16(len(frame)), InPort: 1, Data: frame}
	l.template, _ = in.AppendTo(nil, 0)
	l.at = offsets{inPort: inPortAt, frame: len(l.template) - len(frame), seq: len(l.template) - 8}
	return l
}

// mac returns the address of a host of this switch.
func (l *loader) mac(host int) openflow.MAC {
	return openflow.MAC{0x06, byte(l.dpid >> 8), byte(l.dpid), byte(host >> 16), byte(host >> 8), byte(host)}
}

func (l *loader) port(host int) uint32 { return uint32(host%l.opts.Ports) + 1 }

// packetIn queues a packet-in from one host to another.
func (l *loader) packetIn(src int, dst openflow.MAC, seq uint64) {
	start := len(l.out)
	l.out = append(l.out, l.template...)
	m := l.out[start:]
	from := l.mac(src)
	be.PutUint32(m[l.at.inPort:], l.port(src))
	copy(m[l.at.frame:], dst[:])
	copy(m[l.at.frame+6:], from[:])
	be.PutUint64(m[l.at.seq:], seq)
}

// introduce sends a packet from every host, so that the controller learns its port.
func (l *loader) introduce() {
	for h := range l.opts.Hosts {
		l.packetIn(h, packet.Broadcast, introduction)
	}
}

// introduction is the sequence number of packets that are not counted.
const introduction = ^uint64(0)

// load queues the next packet-in, between two hosts drawn at random.
func (l *loader) load(now time.Time) {
	l.random ^= l.random << 13
	l.random ^= l.random >> 7
	l.random ^= l.random << 17
	src := int(l.random>>33) % l.opts.Hosts
	dst := (src + 1 + int(l.random&0xffff)%(l.opts.Hosts-1)) % l.opts.Hosts
	if l.port(src) == l.port(dst) {
		dst = (dst + 1) % l.opts.Hosts
	}
	l.packetIn(src, l.mac(dst), l.next)
	if (l.next%sampleEvery == 0 || l.opts.Window == 1) && len(l.rtts) < maxSamples {
		l.sent[l.next] = now
	}
	l.next++
	l.count.sent++
}

// handle handles one message from the controller.
func (l *loader) handle(m []byte, now time.Time) error {
	xid := openflow.XID(m)
	switch openflow.MsgType(m[1]) {
	case openflow.TypePacketOut:
		l.countAnswer(m, now)
	case openflow.TypeFlowMod:
		l.count.flowMods++
	case openflow.TypeEchoRequest:
		return l.reply(&openflow.EchoReply{Data: bytes.Clone(m[8:])}, xid)
	case openflow.TypeFeaturesRequest:
		l.ready = true
		return l.reply(&openflow.FeaturesReply{DatapathID: l.dpid, Tables: 1}, xid)
	case openflow.TypeBarrierRequest:
		return l.reply(&openflow.BarrierReply{}, xid)
	case openflow.TypeGetConfigRequest:
		return l.reply(&openflow.GetConfigReply{Config: openflow.Config{MissLen: openflow.MaxLenNoBuffer}}, xid)
	case openflow.TypeRoleRequest:
		return l.reply(&openflow.RoleReply{Role: openflow.RoleMaster}, xid)
	case openflow.TypeExperimenter:
		return l.reply(&openflow.Error{Code: openflow.BadRequestExperimenter, Data: bytes.Clone(m[:min(len(m), 64)])}, xid)
	case openflow.TypeMultipartRequest:
		return l.multipart(m, xid)
	case openflow.TypeError:
		_, e, err := openflow.Decode(m)
		if err != nil {
			return err
		}
		return fmt.Errorf("switch %v: the controller reports %v", l.dpid, e)
	}
	return nil
}

func (l *loader) reply(m openflow.Message, xid uint32) (err error) {
	l.out, err = m.AppendTo(l.out, xid)
	return err
}

func (l *loader) multipart(m []byte, xid uint32) error {
	switch openflow.MultipartType(be.Uint16(m[8:])) {
	case openflow.MultipartDesc:
		return l.reply(&openflow.MultipartReply{Body: &openflow.Desc{Manufacturer: "Sluice", Software: "loadgen"}}, xid)
	case openflow.MultipartPortDesc:
		var ports openflow.PortDescReply
		for i := range uint32(l.opts.Ports) {
			ports = append(ports, openflow.Port{
				Number: i + 1, MAC: openflow.MAC{0x0a, 0, 0, byte(l.dpid >> 8), byte(l.dpid), byte(i)}, Name: fmt.Sprintf("p%d", i+1),
				State: openflow.PortStateLive, CurrSpeed: 1e7, MaxSpeed: 1e7,
			})
		}
		return l.reply(&openflow.MultipartReply{Body: &ports}, xid)
	case openflow.MultipartFlow:
		return l.reply(&openflow.MultipartReply{Body: &openflow.FlowStatsReply{}}, xid)
	default:
		return l.reply(&openflow.Error{Code: openflow.BadRequestMultipart, Data: bytes.Clone(m[:min(len(m), 64)])}, xid)
	}
}

// countAnswer counts a packet that the controller has returned. It ignores other packets: probes of
// links, and copies of the packets that introduce hosts.
func (l *loader) countAnswer(m []byte, now time.Time) {
	actions := int(be.Uint16(m[16:]))
	if len(m) < 24+actions {
		return
	}
	frame := m[24+actions:]
	if len(frame) != len(l.template)-l.at.frame || frame[6] != 0x06 {
		return
	}
	seq := be.Uint64(frame[len(frame)-8:])
	if seq == introduction {
		return
	}
	if seq < l.answered {
		l.count.reordered++
	} else {
		l.answered = seq + 1
	}
	l.count.answered++
	if at, ok := l.sent[seq]; ok {
		delete(l.sent, seq)
		l.rtts = append(l.rtts, now.Sub(at))
	}
}

// batch reads and handles the messages that have arrived, and returns the number of answers among
// them.
func (l *loader) batch() (uint64, error) {
	before := l.count.answered
	m, err := l.r.Next()
	now := time.Now()
	for {
		if err != nil {
			return 0, err
		}
		if err := l.handle(m, now); err != nil {
			return 0, err
		}
		if !l.r.Buffered() {
			return l.count.answered - before, nil
		}
		m, err = l.r.Next()
	}
}

func (l *loader) flush() error {
	if len(l.out) == 0 {
		return nil
	}
	_, err := l.conn.Write(l.out)
	l.out = l.out[:0]
	return err
}

// handshake sends a hello, and then answers requests until the controller has asked for the features
// and the settling time is over.
func (l *loader) handshake(ctx context.Context) error {
	if err := l.reply(openflow.NewHello(), 0); err != nil {
		return err
	}
	if err := l.flush(); err != nil {
		return err
	}
	return l.handleUntil(ctx, time.Now().Add(l.opts.Settle), func() bool { return l.ready })
}

// handleUntil handles messages until the given time, and until done returns true, whichever is later.
func (l *loader) handleUntil(ctx context.Context, end time.Time, done func() bool) error {
	const tick = 20 * time.Millisecond
	limit := end.Add(10 * time.Second)
	for {
		now := time.Now()
		if now.After(end) && done() {
			return l.conn.SetReadDeadline(time.Time{})
		}
		if now.After(limit) {
			return fmt.Errorf("switch %v: the controller does not answer", l.dpid)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		_ = l.conn.SetReadDeadline(now.Add(tick))
		if _, err := l.batch(); err != nil && !isTimeout(err) {
			return err
		}
		if err := l.flush(); err != nil {
			return err
		}
	}
}
