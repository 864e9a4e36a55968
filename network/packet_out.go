package network

import (
	"encoding/binary"
	"fmt"

	"github.com/sluice-net/sluice/openflow"
)

func (ch *channel) packetOut(inPort uint32, actions []openflow.Action, data []byte) error {
	m := openflow.PacketOut{BufferID: openflow.NoBuffer, InPort: inPort, Actions: actions, Data: data}
	if err := ch.queuePacketOut(&m); err != nil {
		return err
	}
	ch.out.flush()
	return nil
}

// queuePacketOut queues a packet-out, which the next flush writes.
func (ch *channel) queuePacketOut(m *openflow.PacketOut) error {
	if ch.ended() {
		return ch.down()
	}
	b, ok := ch.out.lockPackets(len(m.Data) + 64)
	if !ok {
		return fmt.Errorf("packet-out to switch %v: %w: its output queue is full", ch.dpid, ErrBusy)
	}
	b, err := m.AppendTo(b, ch.xid.Add(1))
	ch.out.unlockPackets(b)
	return err
}

// queueOutput is queuePacketOut for what default forwarding sends most: one
// packet out of one port.
func (ch *channel) queueOutput(inPort, out uint32, data []byte) error {
	b, ok := ch.out.lockPackets(len(data) + 64)
	if !ok {
		return errOutputFull
	}
	ch.out.unlockPackets(appendOutput(b, ch.xid.Add(1), inPort, out, data))
	return nil
}

var errOutputFull = fmt.Errorf("%w: the switch's output queue is full", ErrBusy)

// appendOutput appends a packet-out with a single output action.
func appendOutput(b []byte, xid, inPort, out uint32, data []byte) []byte {
	const size = 24 + 16
	be := binary.BigEndian
	var m [size]byte
	m[0], m[1] = openflow.Version, byte(openflow.TypePacketOut)
	be.PutUint16(m[2:], uint16(size+len(data)))
	be.PutUint32(m[4:], xid)
	be.PutUint32(m[8:], openflow.NoBuffer)
	be.PutUint32(m[12:], inPort)
	be.PutUint16(m[16:], 16) // bytes of actions
	be.PutUint16(m[26:], 16) // bytes of the action, whose type is zero
	be.PutUint32(m[28:], out)
	return append(append(b, m[:]...), data...)
}
