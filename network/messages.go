package network

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/sluice-net/sluice/openflow"
)

// Messages is how many messages have gone one way over a connection, by their type.
type Messages [openflow.NumTypes]uint64

// messageHeader is how long the header of a message is, in bytes (OpenFlow 1.3.5, section 7.1).
const messageHeader = 8

// messageCounts count them. They may be used concurrently.
type messageCounts [openflow.NumTypes]atomic.Uint64

// add counts one message.
func (c *messageCounts) add(t openflow.MsgType) {
	if t < openflow.NumTypes {
		c[t].Add(1)
	}
}

// addAll counts messages that stand one after the other in b.
func (c *messageCounts) addAll(b []byte) {
	for len(b) >= messageHeader {
		c.add(openflow.MsgType(b[1]))
		length := int(binary.BigEndian.Uint16(b[2:]))
		b = b[min(max(length, messageHeader), len(b)):]
	}
}

func (c *messageCounts) read() (m Messages) {
	for t := range c {
		m[t] = c[t].Load()
	}
	return m
}
