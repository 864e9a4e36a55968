package network

import (
	"fmt"
	"sync"
	"time"

	"github.com/sluice-net/sluice/network/discovery"
	"github.com/sluice-net/sluice/network/packet"
)

// loops are packets that a switch is given and gives back at once. Their round trip
// is that of a probe of a link without the link: it has the time that the switch
// takes to send a packet and to report one, which an echo has not.
type loops struct {
	mu     sync.Mutex
	number uint64
	came   chan time.Time // where the answer to the latest is waited for
	failed int            // in a row
	last   time.Time      // when the latest came back or was given up
}

const (
	// loopTimeout is how long a packet may be under way.
	loopTimeout = time.Second
	// loopFailures is after how many packets that did not come back a switch is
	// taken to be unable to do that. Its links are measured by echoes then.
	loopFailures = 3
	// loopAgain is after how long it is tried again: they may just have been lost.
	loopAgain = 30 * time.Second
)

// able reports whether the switch gives packets back, so far as is known.
func (l *loops) able(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed < loopFailures || now.Sub(l.last) >= loopAgain
}

// next makes the next packet and the channel on which its return is told.
func (l *loops) next() (frame []byte, came <-chan time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	l.came = make(chan time.Time, 1)
	return loopFrame(l.number), l.came
}

// over takes note of how the latest packet has ended.
func (l *loops) over(back bool, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.came, l.last = nil, now
	if l.failed++; back {
		l.failed = 0
	}
}

// returned takes a packet that has come back. It runs on the reader.
func (l *loops) returned(frame []byte, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.came != nil && string(frame) == string(loopFrame(l.number)) {
		l.came <- at
		l.came = nil
	}
}

// loopFrame is an LLDP frame without meaning, with a number.
func loopFrame(number uint64) []byte {
	b := append([]byte{}, discovery.Multicast[:]...)
	b = append(b, make([]byte, 6)...)
	b = append(b, packet.TypeLLDP>>8, packet.TypeLLDP&0xff)
	b = fmt.Appendf(b, "%016x", number)
	return append(b, make([]byte, 60-len(b))...)
}
