package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// PullOptions describes a download between two hosts.
type PullOptions struct {
	Client, Server Inside
	Listen         netip.AddrPort // the server's address; port 0 means a free one
	From           netip.AddrPort // the client's address; the zero value lets the kernel choose
	Rate           float64        // bit/s to which the server paces itself; 0 means unlimited
	Congestion     string         // congestion control of the server's socket; empty means the system's
}

// PullInterval is the resolution of a download's goodput.
const PullInterval = 100 * time.Millisecond

// maxIntervals bounds the intervals of a download: an hour.
const maxIntervals = 36_000

// Pull is a TCP download that runs until it is stopped. The client checks the bytes, so that a
// lost, duplicated or misplaced byte is detected.
type Pull struct {
	began          time.Time
	client, server *net.TCPConn
	running        sync.WaitGroup
	stopping       chan struct{}

	mu        sync.Mutex
	intervals []int64
	bytes     int64
	lastRead  time.Time
	silences  []silence
	wrong     bool
	errs      []error
}

// silence is a time without bytes. It is recorded if it is longer than worthSilence.
type silence struct{ from, to time.Time }

const (
	worthSilence = 5 * time.Millisecond
	maxSilences  = 100_000
	// patternSize is not a multiple of the size of any buffer. Otherwise the loss of a whole buffer
	// would not be detected.
	patternSize = 999_983
)

// pattern returns the bytes that every download repeats.
var pattern = sync.OnceValue(func() []byte {
	b := make([]byte, patternSize)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // It never fails.
	return b
})

// StartPull connects and starts the download.
func StartPull(ctx context.Context, o PullOptions) (*Pull, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	p := &Pull{stopping: make(chan struct{})}
	if err := p.connect(ctx, o); err != nil {
		return nil, fmt.Errorf("download from %v: %w", o.Listen, err)
	}
	if err := tune(p.server, o); err != nil {
		p.client.Close()
		p.server.Close()
		return nil, fmt.Errorf("download from %v: %w", o.Listen, err)
	}
	p.began = time.Now()
	p.lastRead = p.began
	p.running.Add(2)
	go func() { defer p.running.Done(); p.fail(p.serve()) }()
	go func() { defer p.running.Done(); p.fail(p.read()) }()
	return p, nil
}

func (p *Pull) connect(ctx context.Context, o PullOptions) error {
	var listener *net.TCPListener
	err := o.Server.Do(func() (err error) {
		listener, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(o.Listen))
		return err
	})
	if err != nil {
		return err
	}
	defer listener.Close()
	to := netip.AddrPortFrom(o.Listen.Addr(), uint16(listener.Addr().(*net.TCPAddr).Port))
	err = o.Client.Do(func() error {
		var d net.Dialer
		if o.From.IsValid() {
			d.LocalAddr = net.TCPAddrFromAddrPort(o.From)
		}
		conn, err := d.DialContext(ctx, "tcp", to.String())
		if err != nil {
			return err
		}
		p.client = conn.(*net.TCPConn)
		return nil
	})
	if err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok {
		err = listener.SetDeadline(deadline)
	}
	if err == nil {
		p.server, err = listener.AcceptTCP()
	}
	if err != nil {
		p.client.Close()
	}
	return err
}

// tune sets the server's pace and congestion control.
func tune(c *net.TCPConn, o PullOptions) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		if o.Rate > 0 {
			failed = unix.SetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, uint64(o.Rate/8))
		}
		if o.Congestion != "" {
			failed = errors.Join(failed, unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, o.Congestion))
		}
	})
	return errors.Join(err, failed)
}

func (p *Pull) fail(err error) {
	select {
	case <-p.stopping:
		return // Stop has closed the connection.
	default:
	}
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.errs = append(p.errs, err)
	}
}

func (p *Pull) serve() error {
	all := pattern()
	for {
		if _, err := p.server.Write(all); err != nil {
			return fmt.Errorf("server: %w", err)
		}
	}
}

func (p *Pull) read() error {
	block := make([]byte, 128<<10)
	for at := 0; ; {
		n, err := p.client.Read(block)
		now := time.Now()
		right := matches(block[:n], at)
		at = (at + n) % patternSize
		p.note(now, n, right)
		if errors.Is(err, io.EOF) {
			err = errors.New("the server's end was closed")
		}
		if err != nil {
			return fmt.Errorf("client: %w", err)
		}
	}
}

// matches reports whether the block equals the pattern from the given offset on.
func matches(block []byte, at int) bool {
	all := pattern()
	for len(block) > 0 {
		n := min(len(block), len(all)-at)
		if !bytes.Equal(block[:n], all[at:at+n]) {
			return false
		}
		block, at = block[n:], 0
	}
	return true
}

func (p *Pull) note(now time.Time, n int, right bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrong = p.wrong || !right
	p.bytes += int64(n)
	i := int(now.Sub(p.began) / PullInterval)
	for len(p.intervals) <= i && len(p.intervals) < maxIntervals {
		p.intervals = append(p.intervals, 0)
	}
	if i < len(p.intervals) {
		p.intervals[i] += int64(n)
	}
	if now.Sub(p.lastRead) > worthSilence && len(p.silences) < maxSilences {
		p.silences = append(p.silences, silence{p.lastRead, now})
	}
	p.lastRead = now
}

// Bytes returns the number of bytes that have arrived so far.
func (p *Pull) Bytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes
}

// Stop ends the download and returns its record.
func (p *Pull) Stop() *PullLog {
	l := p.Snapshot()
	close(p.stopping)
	now := time.Now()
	_ = p.server.SetWriteDeadline(now)
	_ = p.client.SetReadDeadline(now)
	p.running.Wait()
	_ = p.server.SetLinger(0) // The data in the buffers is not needed.
	p.server.Close()
	p.client.Close()
	return l
}

// Snapshot returns the record so far.
func (p *Pull) Snapshot() *PullLog {
	ended := time.Now()
	l := &PullLog{began: p.began, ended: ended, Retransmits: retransmits(p.server)}
	p.mu.Lock()
	defer p.mu.Unlock()
	whole := int(ended.Sub(p.began) / PullInterval)
	for len(p.intervals) < whole && len(p.intervals) < maxIntervals {
		p.intervals = append(p.intervals, 0)
	}
	l.intervals = slices.Clone(p.intervals[:min(whole, len(p.intervals))])
	l.silences = append(slices.Clone(p.silences), silence{p.lastRead, ended})
	l.Bytes, l.Wrong, l.Err = p.bytes, p.wrong, errors.Join(p.errs...)
	for _, err := range p.errs {
		if errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
			l.Resets = 1
		}
	}
	return l
}

// retransmits returns the number of segments that the socket has retransmitted.
func retransmits(c *net.TCPConn) int {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = int(info.Total_retrans)
		}
	})
	return n
}

// PullLog is the record of a download.
type PullLog struct {
	Bytes       int64
	Resets      int   // 1 if the connection was reset
	Err         error // error that ended the download before it was stopped, or nil
	Wrong       bool  // reports whether a byte was wrong
	Retransmits int   // segments that the server has retransmitted

	began, ended time.Time
	intervals    []int64
	silences     []silence
}

// PullReport summarises the goodput of a span of time at a resolution of 100 ms.
type PullReport struct {
	Intervals     int
	Median, Least float64 // bit/s
	// Dips counts the intervals with less than half of the whole download's median.
	Dips int
	// Silence is the longest time without a byte.
	Silence time.Duration
}

// All reports on everything but the first second, in which TCP finds its rate.
func (l *PullLog) All() PullReport { return l.Between(l.began.Add(time.Second), l.ended) }

// Between reports on the whole intervals of a span of time.
func (l *PullLog) Between(from, to time.Time) PullReport {
	rates := l.SeriesBetween(from, to)
	half := median(bitRates(l.intervals)) / 2
	r := PullReport{Intervals: len(rates), Median: median(rates)}
	for i, rate := range rates {
		if i == 0 || rate < r.Least {
			r.Least = rate
		}
		if rate < half {
			r.Dips++
		}
	}
	for _, s := range l.silences {
		if s.to.After(from) && s.from.Before(to) {
			r.Silence = max(r.Silence, s.to.Sub(s.from))
		}
	}
	return r
}

// SeriesBetween returns the goodput in bit/s of each whole interval of a span of time.
func (l *PullLog) SeriesBetween(from, to time.Time) []float64 {
	first := int((max(from.Sub(l.began), 0) + PullInterval - 1) / PullInterval)
	last := min(int(max(to.Sub(l.began), 0)/PullInterval), len(l.intervals))
	return bitRates(l.intervals[min(first, last):last])
}

func bitRates(intervals []int64) []float64 {
	rates := make([]float64, len(intervals))
	for i, n := range intervals {
		rates[i] = float64(n) * 8 / PullInterval.Seconds()
	}
	return rates
}

// median returns the median, or 0 if there are no values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
