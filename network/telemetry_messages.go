package network

import (
	"encoding/binary"
	"iter"
	"sync/atomic"

	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// messageHeader is the length of a message's header in bytes (OpenFlow 1.3.5, section 7.1).
const messageHeader = 8

// multipartKinds is the number of multipart types that are counted separately; the last counts all
// others.
const multipartKinds = int(openflow.MultipartPortDesc) + 2

// Indices of the counters: messages by type; LLDP packets separately; and multipart messages by
// the type of their body.
const (
	countLLDPIn   = openflow.NumTypes
	countLLDPOut  = countLLDPIn + 1
	countRequests = countLLDPOut + 1
	countReplies  = countRequests + multipartKinds
	messageCount  = countReplies + multipartKinds
)

// Messages counts the messages that have travelled in one direction of a connection, by their
// kind. The zero value has counted none.
type Messages [messageCount]uint64

// Of returns the number of messages of a type.
func (m *Messages) Of(t openflow.MsgType) (n uint64) {
	for kind, of := range m.All() {
		if kind.Type == t {
			n += of
		}
	}
	return n
}

// MessageKind is the kind of a message.
type MessageKind struct {
	Type openflow.MsgType
	// About is "lldp" for packet-ins and packet-outs with LLDP or loop probes, and the type of the
	// body for multipart messages. It is empty for all other messages.
	About string
}

// All returns the kinds that have occurred, with their numbers.
func (m *Messages) All() iter.Seq2[MessageKind, uint64] {
	return func(yield func(MessageKind, uint64) bool) {
		for i, n := range m {
			if n > 0 && !yield(kindOfCount(i), n) {
				return
			}
		}
	}
}

// kindOfCount returns the kind of the messages that the counter with index i counts.
func kindOfCount(i int) MessageKind {
	about := func(n int) string {
		if n == multipartKinds-1 {
			return openflow.MultipartExperimenter.String()
		}
		return openflow.MultipartType(n).String()
	}
	switch {
	case i >= countReplies:
		return MessageKind{openflow.TypeMultipartReply, about(i - countReplies)}
	case i >= countRequests:
		return MessageKind{openflow.TypeMultipartRequest, about(i - countRequests)}
	case i == countLLDPOut:
		return MessageKind{openflow.TypePacketOut, "lldp"}
	case i == countLLDPIn:
		return MessageKind{openflow.TypePacketIn, "lldp"}
	}
	return MessageKind{Type: openflow.MsgType(i)}
}

// messageCounts holds the counters of Messages. They may be used concurrently.
type messageCounts [messageCount]atomic.Uint64

// add counts one message, which has at least a header.
func (c *messageCounts) add(m []byte) {
	i := int(m[1])
	switch openflow.MsgType(m[1]) {
	case openflow.TypePacketIn:
		if isLLDP(m, packetInMatch+2, func(match int) int { return packetInMatch + (match+7)/8*8 + 2 }) {
			i = countLLDPIn
		}
	case openflow.TypePacketOut:
		if isLLDP(m, packetOutLength, func(actions int) int { return packetOutActions + actions }) {
			i = countLLDPOut
		}
	case openflow.TypeMultipartRequest:
		i = countRequests + multipartIndex(m)
	case openflow.TypeMultipartReply:
		i = countReplies + multipartIndex(m)
	default:
		if i >= openflow.NumTypes {
			return
		}
	}
	c[i].Add(1)
}

// Offsets in messages that carry packets (OpenFlow 1.3.5, sections 7.4.1 and 7.3.7): the match of
// a packet-in; the length of the actions of a packet-out, and the actions.
const (
	packetInMatch    = 24
	packetOutLength  = 16
	packetOutActions = 24
)

// isLLDP reports whether the packet in a message is LLDP or a loop probe, which is counted as LLDP.
// The element before the packet, a match or actions, has a variable length, which the message holds
// at offset length. packetStart returns the packet's offset for that length.
func isLLDP(m []byte, length int, packetStart func(int) int) bool {
	if len(m) < length+2 {
		return false
	}
	const addresses = 12
	offset := packetStart(int(binary.BigEndian.Uint16(m[length:]))) + addresses
	if len(m) < offset+2 {
		return false
	}
	kind := binary.BigEndian.Uint16(m[offset:])
	return kind == packet.TypeLLDP || kind == discovery.LoopType
}

// multipartIndex returns the index of a multipart message's type.
func multipartIndex(m []byte) int {
	const last = multipartKinds - 1
	if len(m) < messageHeader+2 {
		return last
	}
	return min(int(binary.BigEndian.Uint16(m[messageHeader:])), last)
}

// addAll counts the messages in b, which follow each other.
func (c *messageCounts) addAll(b []byte) {
	for len(b) >= messageHeader {
		length := min(max(int(binary.BigEndian.Uint16(b[2:])), messageHeader), len(b))
		c.add(b[:length])
		b = b[length:]
	}
}

func (c *messageCounts) read() (m Messages) {
	for i := range c {
		m[i] = c[i].Load()
	}
	return m
}
