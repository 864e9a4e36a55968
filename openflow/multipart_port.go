package openflow

import "fmt"

// PortDescReply answers a PortDescRequest.
type PortDescReply []Port

// MultipartType returns MultipartPortDesc.
func (*PortDescReply) MultipartType() MultipartType { return MultipartPortDesc }

func (r *PortDescReply) append(b []byte) ([]byte, error) {
	for i := range *r {
		b = (*r)[i].append(b)
	}
	return b, nil
}

func (r *PortDescReply) decode(b []byte) (err error) {
	*r, err = parseRecords("port", b, portSize, parsePort)
	return err
}

// String describes the body.
func (r *PortDescReply) String() string { return list(*r) }

// Unsupported is the value of a counter that the switch does not keep.
const Unsupported = ^uint64(0)

// PortStats counts the packets of a port. A counter that the switch does not
// keep is Unsupported.
type PortStats struct {
	Port                            uint32
	RxPackets, TxPackets            uint64
	RxBytes, TxBytes                uint64
	RxDropped, TxDropped            uint64
	RxErrors, TxErrors              uint64
	RxFrameErr, RxOverErr, RxCRCErr uint64
	Collisions                      uint64
	Duration                        Duration // how long the port has been there
}

const portStatsSize = 112

// PortStatsReply answers a PortStatsRequest.
type PortStatsReply []PortStats

// MultipartType returns MultipartPortStats.
func (*PortStatsReply) MultipartType() MultipartType { return MultipartPortStats }

// counters lists the counters in the order on the wire.
func (p *PortStats) counters() [12]*uint64 {
	return [...]*uint64{
		&p.RxPackets, &p.TxPackets, &p.RxBytes, &p.TxBytes, &p.RxDropped, &p.TxDropped,
		&p.RxErrors, &p.TxErrors, &p.RxFrameErr, &p.RxOverErr, &p.RxCRCErr, &p.Collisions,
	}
}

func (r *PortStatsReply) append(b []byte) ([]byte, error) {
	for i := range *r {
		p := &(*r)[i]
		b = pad(put32(b, p.Port), 4)
		for _, c := range p.counters() {
			b = put64(b, *c)
		}
		b = p.Duration.append(b)
	}
	return b, nil
}

func (r *PortStatsReply) decode(b []byte) (err error) {
	*r, err = parseRecords("port stats", b, portStatsSize, func(b []byte) PortStats {
		p := PortStats{Port: be.Uint32(b), Duration: parseDuration(b[104:])}
		for i, c := range p.counters() {
			*c = be.Uint64(b[8+8*i:])
		}
		return p
	})
	return err
}

// String describes the port's counters.
func (p PortStats) String() string {
	return fmt.Sprintf("port=%s rx: packets=%s bytes=%s dropped=%s errors=%s frame=%s over=%s crc=%s tx: packets=%s bytes=%s dropped=%s errors=%s collisions=%s duration=%v",
		PortName(p.Port), count(p.RxPackets), count(p.RxBytes), count(p.RxDropped), count(p.RxErrors), count(p.RxFrameErr), count(p.RxOverErr), count(p.RxCRCErr),
		count(p.TxPackets), count(p.TxBytes), count(p.TxDropped), count(p.TxErrors), count(p.Collisions), p.Duration)
}

// count prints a counter, or "?" for one that is not kept.
func count(v uint64) string {
	if v == Unsupported {
		return "?"
	}
	return fmt.Sprint(v)
}

// String describes the body.
func (r *PortStatsReply) String() string { return list(*r) }

// QueueStats counts the packets of a queue.
type QueueStats struct {
	Port, Queue                  uint32
	TxBytes, TxPackets, TxErrors uint64
	Duration                     Duration
}

const queueStatsSize = 40

// QueueStatsReply answers a QueueStatsRequest.
type QueueStatsReply []QueueStats

// MultipartType returns MultipartQueue.
func (*QueueStatsReply) MultipartType() MultipartType { return MultipartQueue }

func (r *QueueStatsReply) append(b []byte) ([]byte, error) {
	for _, q := range *r {
		b = put32(put32(b, q.Port), q.Queue)
		b = put64(put64(put64(b, q.TxBytes), q.TxPackets), q.TxErrors)
		b = q.Duration.append(b)
	}
	return b, nil
}

func (r *QueueStatsReply) decode(b []byte) (err error) {
	*r, err = parseRecords("queue stats", b, queueStatsSize, func(b []byte) QueueStats {
		return QueueStats{
			Port: be.Uint32(b), Queue: be.Uint32(b[4:]),
			TxBytes: be.Uint64(b[8:]), TxPackets: be.Uint64(b[16:]), TxErrors: be.Uint64(b[24:]),
			Duration: parseDuration(b[32:]),
		}
	})
	return err
}

// String describes the queue's counters.
func (q QueueStats) String() string {
	return fmt.Sprintf("port=%s queue=%s tx: packets=%s bytes=%s errors=%s duration=%v",
		PortName(q.Port), queueName(q.Queue), count(q.TxPackets), count(q.TxBytes), count(q.TxErrors), q.Duration)
}

// String describes the body.
func (r *QueueStatsReply) String() string { return list(*r) }
