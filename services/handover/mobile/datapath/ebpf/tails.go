package ebpf

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/internal/packetsocket"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// Sizes of bpf/datapath.c.
const (
	tails    = 256
	tailHead = 96
	tailData = 1504
)

// segment is the last segment of a connection.
type segment datapathSegment

// SendAgain sends again the last segment of each TCP connection that has sent one within the given
// time, both the last with payload and the last without. The segments leave by the interface in
// use, to the MAC address gateway or, if that is zero, to their earlier destination. They replace
// segments that a failed interface may have lost: a few hundred at most.
func (d *Datapath) SendAgain(within time.Duration, gateway openflow.MAC) (sent int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return 0, errClosed
	}
	found, err := d.progs.lately(within)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	vni, err := net.InterfaceByName(d.config.VNI)
	if err != nil {
		return 0, fmt.Errorf("sending again: %w", err)
	}
	socket, err := packetsocket.Open(vni, packetsocket.Options{SendOnly: true})
	if err != nil {
		return 0, fmt.Errorf("sending again: %w", err)
	}
	defer socket.Close()
	for _, t := range found {
		frame := t.frame()
		if !gateway.IsZero() {
			copy(frame, gateway[:])
		}
		if e := socket.Send(frame); e != nil {
			err = errors.Join(err, fmt.Errorf("sending again: %w", e))
			continue
		}
		sent++
	}
	return sent, err
}

// lately returns the segments that are not older than within, the oldest first.
func (s *shared) lately(within time.Duration) ([]*segment, error) {
	var found []*segment
	for place := range uint32(tails) {
		last := new(datapathTail)
		if err := s.maps.Tails.LookupWithFlags(place, last, ebpf.LookupLock); err != nil {
			return nil, fmt.Errorf("reading what was sent last: %w", err)
		}
		if t := (*segment)(&last.S); t.At != 0 && since(t.At) <= within && t.Head <= tailHead && t.Data <= tailData {
			found = append(found, t)
		}
	}
	slices.SortFunc(found, func(a, b *segment) int { return cmp.Compare(a.At, b.At) })
	return found, nil
}

// Offsets in a frame whose IPv4 header has no options.
const (
	atIP       = 14
	atTCP      = atIP + 20
	ipLength   = atIP + 2
	ipChecksum = atIP + 10
	ipAddress  = atIP + 12
	tcpSeq     = atTCP + 4
	tcpSum     = atTCP + 16
	protoTCP   = 6
)

// frame returns the segment as it would have left the interface: the last piece of a large one,
// with the checksums that the interface would compute.
func (t *segment) frame() []byte {
	b := append(slices.Clone(t.Bytes[:t.Head]), t.Bytes[tailHead:tailHead+t.Data]...)
	be := binary.BigEndian
	be.PutUint16(b[ipLength:], uint16(len(b)-atIP))
	be.PutUint32(b[tcpSeq:], be.Uint32(b[tcpSeq:])+t.Skip)
	be.PutUint16(b[ipChecksum:], 0)
	be.PutUint16(b[ipChecksum:], packet.Checksum(packet.Sum(b[atIP:atTCP], 0)))
	be.PutUint16(b[tcpSum:], 0)
	be.PutUint16(b[tcpSum:], packet.Checksum(packet.Sum(b[ipAddress:], protoTCP+uint32(len(b)-atTCP))))
	return b
}
