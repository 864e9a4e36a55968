package delayline

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// These are the offsets in the virtio_net_hdr that precedes each frame on a TAP with IFF_VNET_HDR.
const (
	vnetLen = 10

	vnetFlags      = 0 // u8
	vnetGSOType    = 1 // u8
	vnetHdrLen     = 2 // u16; all fields are in host order (little endian machines)
	vnetGSOSize    = 4 // u16
	vnetCsumStart  = 6 // u16
	vnetCsumOffset = 8 // u16

	vnetNeedsCsum = 1 // flag

	gsoNone  = 0
	gsoTCPv4 = 1
	gsoTCPv6 = 4
	gsoECN   = 0x80 // a bit that is added to the type
)

var native = binary.NativeEndian

var (
	errShort   = errors.New("frame shorter than its headers")
	errGSOType = errors.New("segmentation type that was not offered")
)

// superPacket describes the packets inside one frame as read from a TAP. If the frame is a single packet,
// segments is 1.
type superPacket struct {
	needsCsum bool
	gso       uint8 // without the ECN bit
	l3, l4    int   // offsets within the frame (without vnet header)
	header    int   // bytes of the headers, which every segment repeats
	mss       int
	segments  int
	csumAt    int // offset of the checksum field within the frame
}

// parseSuper reads the vnet header and, for super-packets, the frame's headers.
// buf is the vnet header followed by the frame.
func parseSuper(buf []byte) (superPacket, error) {
	if len(buf) < vnetLen+14 {
		return superPacket{}, errShort
	}
	frame := buf[vnetLen:]
	s := superPacket{segments: 1, needsCsum: buf[vnetFlags]&vnetNeedsCsum != 0, gso: buf[vnetGSOType] &^ gsoECN}
	if s.needsCsum {
		s.l4 = int(native.Uint16(buf[vnetCsumStart:]))
		s.csumAt = s.l4 + int(native.Uint16(buf[vnetCsumOffset:]))
		if s.l4 < 14 || s.csumAt+2 > len(frame) {
			return superPacket{}, errShort
		}
	}
	if s.gso == gsoNone {
		return s, nil
	}
	if (s.gso != gsoTCPv4 && s.gso != gsoTCPv6) || !s.needsCsum {
		return superPacket{}, errGSOType
	}
	return s.parseTCP(buf)
}

func (s superPacket) parseTCP(buf []byte) (superPacket, error) {
	frame := buf[vnetLen:]
	s.l3 = 14
	for at := 12; isVLAN(binary.BigEndian.Uint16(frame[at:])); at += 4 {
		s.l3 += 4
		if s.l3+2 > len(frame) {
			return superPacket{}, errShort
		}
	}
	least := s.l3 + 40
	if s.gso == gsoTCPv4 {
		least = s.l3 + 20
	}
	if s.l4 < least || s.l4+20 > len(frame) {
		return superPacket{}, errShort
	}
	s.header = s.l4 + int(frame[s.l4+12]>>4)*4
	s.mss = int(native.Uint16(buf[vnetGSOSize:]))
	if s.header < s.l4+20 || s.header > len(frame) || s.csumAt+2 > s.header || s.mss == 0 {
		return superPacket{}, errShort
	}
	s.segments = max(1, (len(frame)-s.header+s.mss-1)/s.mss)
	return s, nil
}

func isVLAN(ethertype uint16) bool { return ethertype == 0x8100 || ethertype == 0x88a8 }

// cut selects the segments [first, first+count) of a super-packet as a frame of its own.
type cut struct{ first, count int }

// payload returns the range of the super-packet's frame that the cut carries.
func (s superPacket) payload(c cut, frameLen int) (from, to int) {
	from = s.header + c.first*s.mss
	to = min(from+c.count*s.mss, frameLen)
	return from, to
}

// writeHeader writes the headers of a cut to dst, derived from those of the super-packet buf: vnet
// header, lengths, IPv4 identification and checksum, TCP sequence and flags, and the
// pseudo-header's sum. With full it also completes the checksum, for a receiver without offload. It
// returns the number of bytes written.
func (s superPacket) writeHeader(dst, buf []byte, c cut, full bool) int {
	size := vnetLen + s.header
	copy(dst, buf[:size])
	frameLen := len(buf) - vnetLen
	from, to := s.payload(c, frameLen)
	head := dst[vnetLen:size]
	s.fixIP(head, c, to-from)
	s.fixTCP(head, c)

	// The partial checksum holds the pseudo-header's sum, which includes the length.
	partial := uint64(binary.BigEndian.Uint16(head[s.csumAt:]))
	oldLen, newLen := frameLen-s.l4, s.header-s.l4+to-from
	partial += uint64(^uint16(oldLen)) + uint64(newLen) // In ones' complement this subtracts was and adds is.
	binary.BigEndian.PutUint16(head[s.csumAt:], fold(partial))

	if c.count == 1 {
		dst[vnetGSOType] = gsoNone
		native.PutUint16(dst[vnetGSOSize:], 0)
	}
	if full {
		complete(head, buf[vnetLen+from:vnetLen+to], s.l4, s.csumAt)
		clear(dst[:vnetLen])
	}
	return size
}

func (s superPacket) fixIP(head []byte, c cut, payload int) {
	ip := head[s.l3:]
	if s.gso == gsoTCPv6 {
		binary.BigEndian.PutUint16(ip[4:], uint16(s.header-s.l3-40+payload))
		return
	}
	binary.BigEndian.PutUint16(ip[2:], uint16(s.header-s.l3+payload))
	binary.BigEndian.PutUint16(ip[4:], binary.BigEndian.Uint16(ip[4:])+uint16(c.first))
	ip[10], ip[11] = 0, 0
	length := min(int(ip[0]&15)*4, s.l4-s.l3)
	binary.BigEndian.PutUint16(ip[10:], ^fold(sum(ip[:length], 0)))
}

// These TCP flags belong to the first or to the last segment only.
const (
	tcpFIN = 1 << 0
	tcpPSH = 1 << 3
	tcpCWR = 1 << 7
)

func (s superPacket) fixTCP(head []byte, c cut) {
	tcp := head[s.l4:]
	binary.BigEndian.PutUint32(tcp[4:], binary.BigEndian.Uint32(tcp[4:])+uint32(c.first*s.mss))
	if c.first > 0 {
		tcp[13] &^= tcpCWR
	}
	if c.first+c.count < s.segments {
		tcp[13] &^= tcpFIN | tcpPSH
	}
}

// completeFrame fills in, in place, the checksum of a single packet that a sender with offload left
// to the device.
func (s superPacket) completeFrame(buf []byte) {
	complete(buf[vnetLen:], nil, s.l4, s.csumAt)
	clear(buf[:vnetLen])
}

// complete writes the Internet checksum over head[l4:] and payload into the field at csumAt, which
// holds the pseudo-header's sum. The part of head from l4 on must have an even length, which holds
// for TCP and for single packets.
func complete(head, payload []byte, l4, csumAt int) {
	total := sum(payload, sum(head[l4:], 0))
	value := ^fold(total)
	if value == 0 {
		value = 0xffff // With UDP 0 means "no checksum"; with other protocols both values are equal.
	}
	binary.BigEndian.PutUint16(head[csumAt:], value)
}

// sum adds b to a ones' complement sum, as big-endian words.
func sum(b []byte, initial uint64) uint64 {
	var acc, carry uint64
	for len(b) >= 32 {
		acc, carry = bits.Add64(acc, binary.BigEndian.Uint64(b), carry)
		acc, carry = bits.Add64(acc, binary.BigEndian.Uint64(b[8:]), carry)
		acc, carry = bits.Add64(acc, binary.BigEndian.Uint64(b[16:]), carry)
		acc, carry = bits.Add64(acc, binary.BigEndian.Uint64(b[24:]), carry)
		b = b[32:]
	}
	for len(b) >= 8 {
		acc, carry = bits.Add64(acc, binary.BigEndian.Uint64(b), carry)
		b = b[8:]
	}
	var tail [8]byte
	copy(tail[:], b)
	acc, carry = bits.Add64(acc, binary.BigEndian.Uint64(tail[:]), carry)
	acc, carry = bits.Add64(acc, 0, carry)
	return initial + acc>>32 + acc&0xffffffff + carry
}

// fold brings a sum to 16 bits with end-around carries.
func fold(s uint64) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}
