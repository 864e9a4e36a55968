package openflow

import (
	"fmt"
	"strings"
)

// QueueConfigRequest asks which queues a port has.
type QueueConfigRequest struct{ Port uint32 } // PortAny: all ports

// MsgType returns TypeQueueGetRequest.
func (*QueueConfigRequest) MsgType() MsgType { return TypeQueueGetRequest }

// AppendTo appends the message to b.
func (m *QueueConfigRequest) AppendTo(b []byte, xid uint32) ([]byte, error) {
	start := len(b)
	return finish(pad(put32(begin(b, TypeQueueGetRequest, xid), m.Port), 4), start, nil)
}

// Decode reads the message.
func (m *QueueConfigRequest) Decode(b []byte) error {
	p, err := body(b, TypeQueueGetRequest)
	if err != nil {
		return err
	}
	return decode32("QUEUE_GET_CONFIG_REQUEST", p, &m.Port)
}

// String describes the message.
func (m *QueueConfigRequest) String() string {
	return "QUEUE_GET_CONFIG_REQUEST port=" + PortName(m.Port)
}

// Queue properties.
const (
	queueMinRate      = 1
	queueMaxRate      = 2
	queueExperimenter = 0xffff

	queueHeader   = 16
	queueProperty = 16
)

// RateUnknown is the rate of a queue for which the switch reports no rate.
const RateUnknown uint16 = 0xffff

// Queue describes a queue. Rates are in tenths of a percent of the port's
// speed; more than 1000 means that there is no such limit.
type Queue struct {
	ID, Port         uint32
	MinRate, MaxRate uint16 // RateUnknown when absent
	Experimenter     []byte // experimenter properties, not decoded
}

// QueueConfigReply answers a QueueConfigRequest.
type QueueConfigReply struct {
	Port   uint32
	Queues []Queue
}

// MsgType returns TypeQueueGetReply.
func (*QueueConfigReply) MsgType() MsgType { return TypeQueueGetReply }

// AppendTo appends the message to b.
func (m *QueueConfigReply) AppendTo(b []byte, xid uint32) ([]byte, error) {
	start := len(b)
	b = pad(put32(begin(b, TypeQueueGetReply, xid), m.Port), 4)
	for i := range m.Queues {
		b = m.Queues[i].append(b)
	}
	return finish(b, start, nil)
}

func (q *Queue) append(b []byte) []byte {
	start := len(b)
	b = pad(put32(put32(b, q.ID), q.Port), 8)
	if q.MinRate != RateUnknown {
		b = pad(put16(append(b, 0, queueMinRate, 0, queueProperty, 0, 0, 0, 0), q.MinRate), 6)
	}
	if q.MaxRate != RateUnknown {
		b = pad(put16(append(b, 0, queueMaxRate, 0, queueProperty, 0, 0, 0, 0), q.MaxRate), 6)
	}
	b = append(b, q.Experimenter...)
	setLen16(b, start, 8)
	return b
}

// Decode reads the message.
func (m *QueueConfigReply) Decode(b []byte) error {
	p, err := body(b, TypeQueueGetReply)
	if err != nil {
		return err
	}
	*m = QueueConfigReply{Port: be.Uint32(p)}
	it := iterate(p[8:], &queueShape)
	for it.step() {
		var q Queue
		if err := q.decode(it.elem); err != nil {
			return err
		}
		m.Queues = append(m.Queues, q)
	}
	return it.err
}

func (q *Queue) decode(b []byte) error {
	*q = Queue{ID: be.Uint32(b), Port: be.Uint32(b[4:]), MinRate: RateUnknown, MaxRate: RateUnknown}
	it := iterate(b[queueHeader:], &queuePropertyShape)
	for it.step() {
		kind := be.Uint16(it.elem)
		if kind != queueExperimenter && len(it.elem) != queueProperty {
			return badLength("queue property", it.at, "%d, want %d", len(it.elem), queueProperty)
		}
		switch kind {
		case queueMinRate:
			q.MinRate = be.Uint16(it.elem[8:])
		case queueMaxRate:
			q.MaxRate = be.Uint16(it.elem[8:])
		case queueExperimenter:
			q.Experimenter = append(q.Experimenter, it.elem...)
		}
	}
	return it.err
}

// String describes the message.
func (m *QueueConfigReply) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "QUEUE_GET_CONFIG_REPLY port=%s", PortName(m.Port))
	for _, q := range m.Queues {
		fmt.Fprintf(&s, " queue=%s{port=%s min=%s max=%s}", queueName(q.ID), PortName(q.Port), rate(q.MinRate), rate(q.MaxRate))
	}
	return s.String()
}

func rate(r uint16) string {
	switch {
	case r == RateUnknown:
		return "?"
	case r > 1000:
		return "none"
	}
	return fmt.Sprintf("%d.%d%%", r/10, r%10)
}
