package probe

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/packetsocket"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile/datapath"
)

// Conn is the interface by which probes leave. *packetsocket.Socket with the filter Answers implements
// it.
type Conn interface {
	Send(frame []byte) error
	Receive(ctx context.Context) (packetsocket.Frame, error)
}

// Config is the configuration of a Prober.
type Config struct {
	// MAC is the interface's address.
	MAC     openflow.MAC
	Gateway netip.Addr
	// Interval is the time from one probe to the next on an interface in use while there is no
	// traffic. While the gateway answers ARP only, that time is at least 800 ms. On an interface that
	// is not in use it is at least 5 s. Window is the number of probes over which loss is computed.
	Interval time.Duration
	Window   int
}

// Use describes how the probed interface is used. The zero value means that it is not in use.
type Use struct {
	// From is the device's address, the source of echo requests.
	From netip.Addr
	// Traffic reads the traffic counters of the interface.
	Traffic func() (datapath.Traffic, error)
}

// Sample is the result of probing.
type Sample struct {
	// Loss is the share of the latest Probes that was not answered.
	Loss   float64
	Probes int
	// RTT is the latest round trip. It is zero if a later probe is unanswered, or if it is unknown
	// which probe was answered.
	RTT time.Duration
	// Gateway is the address that answered ARP last.
	Gateway openflow.MAC
	// Answered is when a probe was last answered; not every answer is reported.
	Answered time.Time
	// Since is when the current row of unanswered probes began; zero unless there is more than one.
	// Silent reports whether enough probes are unanswered for the path to count as dead.
	Since  time.Time
	Silent bool
	// Error is why the latest probe was not sent, or why answers are not received.
	Error string
}

// Prober probes a gateway by one interface. Its methods may be called concurrently.
type Prober struct {
	c    Config
	wake chan struct{}

	mu    sync.Mutex
	use   Use
	fresh bool // use has not been applied yet
	asked bool
}

// New returns a prober. It does nothing before Run.
func New(c Config) *Prober { return &Prober{c: c, wake: make(chan struct{}, 1), fresh: true} }

// SetUse sets how the interface is used from now on. While the interface is in use, the gateway is
// probed by ICMP echo, if the gateway answers that. Echo requests take the path of the device's
// packets, whereas another host may answer ARP in the gateway's place.
func (p *Prober) SetUse(u Use) {
	p.mu.Lock()
	p.use, p.fresh = u, true
	p.mu.Unlock()
	p.notify()
}

// Ask requests a probe now.
func (p *Prober) Ask() {
	p.mu.Lock()
	p.asked = true
	p.mu.Unlock()
	p.notify()
}

// notify wakes Run.
func (p *Prober) notify() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// spareInterval is the time between probes by an interface that is not in use. When the interface in
// use falls silent, the others are probed at once.
const spareInterval = 5 * time.Second

// receiveRetry is the wait after receiving has failed.
const receiveRetry = 500 * time.Millisecond

const (
	// reportInterval is the time after which an answer is reported even if it changes nothing.
	reportInterval = 5 * time.Second
	// macInterval is the interval of the ARP requests for the MAC address of a gateway that answers
	// echo requests. While echo requests are unanswered the interval is macRetry, because the
	// address may have changed. The controller answers the ARP requests, so they are not sent with
	// each probe.
	macInterval = 10 * time.Second
	macRetry    = 500 * time.Millisecond
	// arpInterval is the shortest interval between probes while the gateway answers ARP only. The
	// controller answers these probes, too.
	arpInterval = 800 * time.Millisecond
)

// Run probes by conn until ctx ends, whatever happens to the interface. It reports each change,
// the next answer after Ask, and otherwise an answer from time to time.
func (p *Prober) Run(ctx context.Context, conn Conn, report func(Sample)) error {
	r := run{
		Prober: p, conn: conn, d: newDetector(p.c.Interval, p.c.Window),
		id: uint16(rand.Uint32()), number: uint16(rand.Uint32()),
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer, 16)
	wg.Go(func() { r.receive(ctx, answers) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		answered := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case a := <-answers:
			answered = r.handle(a)
		case <-p.wake:
		case <-timer.C:
		}
		for len(answers) > 0 { // handle all answers before a probe counts as lost
			answered = r.handle(<-answers) || answered
		}
		timer.Reset(time.Until(r.step()))
		if s := r.sample(); s.differs(r.reported) || answered && (r.wanted || s.Answered.Sub(r.reported.Answered) >= reportInterval) {
			r.reported, r.wanted = s, r.wanted && !answered
			report(s)
		}
	}
}

// run is the state of Run.
type run struct {
	*Prober
	conn Conn
	d    *detector
	use  Use // as of the last step
	// echoAnswered reports whether the gateway has answered echo requests during this use.
	echoAnswered bool
	gateway      openflow.MAC
	arp          time.Time // when the last ARP request was sent
	id           uint16    // identifier of echo requests
	number       uint16
	rtt          time.Duration
	reported     Sample
	wanted       bool // Ask was called, and no answer has been reported since
	err          string
}

// answer is an answer that was received, or an error.
type answer struct {
	at      time.Time
	gateway openflow.MAC // zero for an echo
	id, no  uint16
	err     error
}

// receive passes answers on until ctx ends. Answers that find no room are dropped: others follow.
func (r *run) receive(ctx context.Context, to chan<- answer) {
	for {
		f, err := r.conn.Receive(ctx)
		if ctx.Err() != nil {
			return
		}
		a := answer{at: time.Now(), err: err}
		if err == nil {
			h, err := packet.Parse(f.Data)
			var echo bool
			if a.id, a.no, echo = echoOf(f.Data, &h); err != nil || !echo && !r.isARP(&h) {
				continue
			}
			if !echo {
				a.gateway = h.ARPSHA
			}
		}
		select {
		case to <- a:
		default:
		}
		if err != nil && tasks.Sleep(ctx, receiveRetry) != nil { // the interface is down, or gone
			return
		}
	}
}

// isARP reports whether a packet is the gateway's answer to our ARP request.
func (r *run) isARP(h *packet.Headers) bool {
	return h.Has(packet.ARP) && h.ARPOp == packet.ARPReply && h.Src == r.c.Gateway && h.ARPTHA == r.c.MAC
}

// handle handles an answer, and reports whether it is the answer to a probe.
func (r *run) handle(a answer) bool {
	switch {
	case a.err != nil:
		r.err = a.err.Error()
		return false
	case !a.gateway.IsZero():
		r.gateway = a.gateway
		if r.echoAnswered {
			return false // a host at the edge may answer although its path to the border ports is cut
		}
		r.rtt = r.d.answered(a.at, 0, false)
	case a.id != r.id:
		return false
	default:
		// The answer may arrive when the interface is no longer in use, because the late answer
		// made the device leave it.
		r.echoAnswered = r.use.From.IsValid()
		r.rtt = r.d.answered(a.at, a.no, true)
		r.setInterval()
	}
	r.err = ""
	return true
}

// setInterval chooses how often to probe, by the use of the interface and by who answers.
func (r *run) setInterval() {
	switch {
	case !r.use.From.IsValid():
		r.d.interval = max(r.c.Interval, spareInterval)
	case !r.echoAnswered:
		r.d.interval = max(r.c.Interval, arpInterval)
	default:
		r.d.interval = r.c.Interval
	}
	r.d.eager = r.echoAnswered
}

// step reads the traffic counters, probes if it is time, and returns when to call it again.
func (r *run) step() time.Time {
	r.mu.Lock()
	fresh, asked := r.fresh, r.asked
	r.fresh, r.asked = false, false
	if fresh {
		r.use, r.echoAnswered, r.arp = r.Prober.use, false, time.Time{}
		r.d.resetCounters()
		r.setInterval()
		if r.use.From.IsValid() {
			r.d.alive(time.Now()) // the device has just joined the network by this interface
		}
	}
	r.mu.Unlock()
	r.d.asked = r.d.asked || asked || fresh
	r.wanted = r.wanted || asked || fresh
	if r.use.Traffic != nil {
		if t, err := r.use.Traffic(); err == nil {
			r.d.observe(time.Now(), t)
		}
	}
	for {
		now := time.Now()
		due, wake := r.d.next(now)
		if !due {
			return wake
		}
		r.number++
		r.d.sent(now, r.number)
		r.send(now)
	}
}

// send sends a probe. An interface that refuses the probe may be dead with a full queue. So a refused
// probe counts as unanswered, and does not stop probing.
func (r *run) send(now time.Time) {
	var err error
	if r.use.From.IsValid() && !r.gateway.IsZero() {
		err = r.conn.Send(appendEcho(nil, r.gateway, r.c.MAC, r.use.From, r.c.Gateway, r.id, r.number))
	}
	if since := now.Sub(r.arp); !r.echoAnswered || r.d.row > 1 && since >= macRetry || since >= macInterval {
		r.arp = now
		if e := r.conn.Send(packet.AppendARPRequest(nil, r.c.MAC, netip.IPv4Unspecified(), r.c.Gateway, 0)); err == nil {
			err = e
		}
	}
	if err != nil {
		r.err = err.Error()
	}
}

// sample returns the present result.
func (r *run) sample() Sample {
	s := Sample{
		Loss: r.d.window.Loss(), Probes: r.d.window.Len(), Gateway: r.gateway,
		Answered: r.d.answer, Since: r.d.silentSince(), Silent: r.d.dead, Error: r.err,
	}
	if r.d.row <= 1 {
		s.RTT = r.rtt
	}
	return s
}

// differs reports whether two results differ in more than their times.
func (s Sample) differs(o Sample) bool {
	s.Answered, s.RTT, o.Answered, o.RTT = time.Time{}, 0, time.Time{}, 0
	return s != o
}
