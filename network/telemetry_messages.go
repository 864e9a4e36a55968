package network

import (
	"encoding/binary"
	"iter"
	"sync/atomic"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// messageHeader is how long the header of a message is, in bytes (OpenFlow 1.3.5, section 7.1).
const messageHeader = 8

// multipartKinds are the types of multipart messages that are told apart; the last stands for all others.
const multipartKinds = int(openflow.MultipartPortDesc) + 2

// What is counted: messages by type, and apart from these packets of LLDP, and multipart messages by
// what they are about.
const (
	countLLDPIn   = openflow.NumTypes
	countLLDPOut  = countLLDPIn + 1
	countRequests = countLLDPOut + 1
	countReplies  = countRequests + multipartKinds
	messageCount  = countReplies + multipartKinds
)

// Messages is how many messages have gone one way over a connection, by what they are. Its zero
// value has none.
type Messages [messageCount]uint64

// Of is how many there are of a type.
func (m *Messages) Of(t openflow.MsgType) (n uint64) {
	for kind, of := range m.All() {
		if kind.Type == t {
			n += of
		}
	}
	return n
}

// MessageKind is what a message is.
type MessageKind struct {
	Type openflow.MsgType
	// About is "lldp" for packets of it, by which links are found, and what a multipart message
	// asks for or tells. It is empty for all other messages.
	About string
}

// All has what there is, and how often.
func (m *Messages) All() iter.Seq2[MessageKind, uint64] {
	return func(yield func(MessageKind, uint64) bool) {
		for i, n := range m {
			if n > 0 && !yield(kindOfCount(i), n) {
				return
			}
		}
	}
}

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

// messageCounts count them. They may be used concurrently.
type messageCounts [messageCount]atomic.Uint64

// add counts one message, which has its header at least.
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

// Where things stand in messages that carry packets (sections 7.4.1 and 7.3.7): the match of one that
// comes, and the length of the actions of one that goes, and these.
const (
	packetInMatch    = 24
	packetOutLength  = 16
	packetOutActions = 24
)

// isLLDP says whether the packet in a message is LLDP. What stands before it has the length that
// is at length, and begins says where the packet begins then.
func isLLDP(m []byte, length int, begins func(int) int) bool {
	if len(m) < length+2 {
		return false
	}
	const addresses = 12
	at := begins(int(binary.BigEndian.Uint16(m[length:]))) + addresses
	return len(m) >= at+2 && binary.BigEndian.Uint16(m[at:]) == packet.TypeLLDP
}

// multipartIndex is what a multipart message is about.
func multipartIndex(m []byte) int {
	const last = multipartKinds - 1
	if len(m) < messageHeader+2 {
		return last
	}
	return min(int(binary.BigEndian.Uint16(m[messageHeader:])), last)
}

// addAll counts messages that stand one after the other in b.
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
