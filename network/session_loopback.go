package network

import (
	"fmt"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/packet"
)

// loopback are packets that a switch is given and gives back at once. Their round trip
// is that of a probe of a link without the link: it has the time that the switch
// takes to send a packet and to report one, which an echo has not.
type loopback struct {
	mu       sync.Mutex
	number   uint64
	returned chan time.Time // where the answer to the latest is waited for
	failures int            // in a row
	last     time.Time      // when the latest came back or was given up
}

const (
	// loopbackTimeout is how long a packet may be under way.
	loopbackTimeout = time.Second
	// maxLoopbackFailures is after how many packets that did not come back a switch is
	// taken to be unable to do that. Its links are measured by echoes then.
	maxLoopbackFailures = 3
	// loopbackRetry is after how long it is tried again: they may just have been lost.
	loopbackRetry = 30 * time.Second
)

// supported reports whether the switch gives packets back, so far as is known.
func (l *loopback) supported(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failures < maxLoopbackFailures || now.Sub(l.last) >= loopbackRetry
}

// next makes the next packet and the channel on which its return is told.
func (l *loopback) next() (frame []byte, came <-chan time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	l.returned = make(chan time.Time, 1)
	return loopbackFrame(l.number), l.returned
}

// finish takes note of how the latest packet has ended.
func (l *loopback) finish(ok bool, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.returned, l.last = nil, now
	if l.failures++; ok {
		l.failures = 0
	}
}

// receive takes a packet that has come back. It runs on the reader.
func (l *loopback) receive(frame []byte, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.returned != nil && string(frame) == string(loopbackFrame(l.number)) {
		l.returned <- at
		l.returned = nil
	}
}

// loopbackFrame is an LLDP frame without meaning, with a number.
func loopbackFrame(number uint64) []byte {
	b := append([]byte{}, discovery.Multicast[:]...)
	b = append(b, make([]byte, 6)...)
	b = append(b, packet.TypeLLDP>>8, packet.TypeLLDP&0xff)
	b = fmt.Appendf(b, "%016x", number)
	return append(b, make([]byte, 60-len(b))...)
}
