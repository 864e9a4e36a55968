package network

import (
	"fmt"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/packet"
)

// loopback tests whether a switch sends a packet from the controller straight back to it. The round
// trip of this packet is that of a link probe without the link: unlike an echo it includes the time
// that the switch takes to send a packet and to report one.
type loopback struct {
	mu       sync.Mutex
	number   uint64
	returned chan time.Time // receives the time at which the latest packet returns
	failures int            // number of packets lost in a row
	last     time.Time      // when the latest packet returned or was given up
}

const (
	// loopbackTimeout is how long the controller waits for a packet to return.
	loopbackTimeout = time.Second
	// maxLoopbackFailures is the number of packets lost in a row after which a switch is assumed to
	// return none. The latency of its links is then computed from echoes.
	maxLoopbackFailures = 3
	// loopbackRetry is the time after which such a switch is tried again, because the packets may
	// just have been lost.
	loopbackRetry = 30 * time.Second
)

// supported reports whether the switch is assumed to return packets.
func (l *loopback) supported(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failures < maxLoopbackFailures || now.Sub(l.last) >= loopbackRetry
}

// next returns the next packet, and the channel that receives the time of its return.
func (l *loopback) next() (frame []byte, returned <-chan time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	l.returned = make(chan time.Time, 1)
	return loopbackFrame(l.number), l.returned
}

// finish records whether the latest packet has returned.
func (l *loopback) finish(ok bool, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.returned, l.last = nil, now
	if l.failures++; ok {
		l.failures = 0
	}
}

// receive handles a packet that has returned. It runs on the reader's goroutine.
func (l *loopback) receive(frame []byte, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.returned != nil && string(frame) == string(loopbackFrame(l.number)) {
		l.returned <- at
		l.returned = nil
	}
}

// loopbackFrame returns a numbered frame that has LLDP's EtherType but no TLVs.
func loopbackFrame(number uint64) []byte {
	b := append([]byte{}, discovery.Multicast[:]...)
	b = append(b, make([]byte, 6)...)
	b = append(b, packet.TypeLLDP>>8, packet.TypeLLDP&0xff)
	b = fmt.Appendf(b, "%016x", number)
	return append(b, make([]byte, 60-len(b))...)
}
