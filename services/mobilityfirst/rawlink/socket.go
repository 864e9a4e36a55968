package rawlink

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/packetsocket"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

const (
	// batch is the maximum number of frames of one system call.
	batch = 64
	// headerSize is the size of an Ethernet header, and tagSize that of a VLAN tag.
	headerSize, tagSize = 14, 4
	// receiveBuffer is the size of the socket's receive buffer, in which frames wait while the
	// program does not run.
	receiveBuffer = 4 << 20
)

// Frame is a received frame.
type Frame struct {
	From openflow.MAC
	// Group reports whether the frame was sent to a group address, such as the broadcast address.
	Group bool
	// Label is the frame's VLAN tag, zero for none.
	Label uint16
	// Payload is the content behind the Ethernet header. It is valid until the next Receive.
	Payload []byte
}

// Socket sends and receives frames on one interface. Send and Receive may be called concurrently
// with each other, each by one goroutine.
type Socket struct {
	// MAC and MTU are the interface's values when the socket was opened.
	MAC openflow.MAC
	MTU int

	socket   *packetsocket.Socket
	received [batch]Frame
}

// Open opens a socket on an interface that is up.
func Open(ifi *net.Interface) (*Socket, error) {
	if len(ifi.HardwareAddr) != len(openflow.MAC{}) {
		return nil, fmt.Errorf("interface %s has no Ethernet address", ifi.Name)
	}
	socket, err := packetsocket.Open(ifi, packetsocket.Options{
		Filter: filter, Batch: batch, MaxFrame: ifi.MTU + headerSize + tagSize, Buffer: receiveBuffer, BypassQueue: true,
	})
	if err != nil {
		return nil, err
	}
	return &Socket{MAC: openflow.MAC(ifi.HardwareAddr), MTU: ifi.MTU, socket: socket}, nil
}

// filter accepts frames with MobilityFirst's EtherType; the kernel has removed their VLAN tags. It
// rejects frames to other stations, which arrive if the interface is promiscuous.
var filter = []bpf.Instruction{
	bpf.LoadAbsolute{Off: headerSize - 2, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: frame.EtherType, SkipFalse: 3},
	bpf.LoadExtension{Num: bpf.ExtType},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PACKET_OTHERHOST, SkipTrue: 1},
	bpf.RetConstant{Val: packetsocket.WholeFrame},
	bpf.RetConstant{},
}

// Close closes the socket; waiting calls return.
func (s *Socket) Close() error { return s.socket.Close() }

// AppendHeader appends an Ethernet header to b, with a VLAN tag if there is a label (1 to 4094).
func (s *Socket) AppendHeader(b []byte, to openflow.MAC, label uint16) []byte {
	b = append(append(b, to[:]...), s.MAC[:]...)
	if label != 0 {
		b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, unix.ETH_P_8021Q), label)
	}
	return binary.BigEndian.AppendUint16(b, frame.EtherType)
}

// Send sends frames, each with its Ethernet header, in order. It stops at the first that cannot be
// sent: with unix.EMSGSIZE if the frame is larger than the MTU allows, and with unix.ENOBUFS if the
// interface has had no room for about ten milliseconds.
func (s *Socket) Send(frames [][]byte) error { return s.socket.SendBatch(frames) }

// Receive waits for frames and returns those that have arrived, up to 64. They are valid until the
// next call. It ends with the error of ctx, or when the socket is closed.
func (s *Socket) Receive(ctx context.Context) ([]Frame, error) {
	frames, err := s.socket.ReceiveBatch(ctx)
	if err != nil {
		return nil, err
	}
	all := s.received[:0]
	for i := range frames {
		if f := &frames[i]; len(f.Data) >= headerSize {
			all = append(all, Frame{openflow.MAC(f.Data[6:12]), openflow.MAC(f.Data).IsMulticast(), f.VLAN, f.Data[headerSize:]})
		}
	}
	return all, nil
}
