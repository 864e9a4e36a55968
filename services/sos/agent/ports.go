package agent

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/kit/control"
)

const (
	// portCooldown is how long a session's port stays unused after the session. Switches use cached
	// decisions about a port for as long as they see packets of that port, and Open vSwitch keeps
	// an unused decision for 10 s.
	portCooldown = 20 * time.Second
	// maxPortTries bounds the ports that are tried in a row because other programs use them.
	maxPortTries = 64
)

var errNoPort = errors.New("no port for a session is free")

// ports holds the agent's free ports towards end hosts. The port that has been unused for longest
// is taken first. Its methods may be called concurrently.
type ports struct {
	mu   sync.Mutex
	free []freePort // a ring, the longest unused port at head
	head int
	n    int
	now  func() time.Time
}

type freePort struct {
	port uint16
	// since is the time at which the port's last session ended; zero if the port had none.
	since time.Time
}

// newPorts returns the ports of a range. The order starts at a random port, so that a restarted
// agent does not use the ports of its last sessions first.
func newPorts(r control.PortRange) *ports {
	n := int(r.Last) - int(r.First) + 1
	p := &ports{free: make([]freePort, n), n: n, now: time.Now}
	start := rand.IntN(n)
	for i := range p.free {
		p.free[i].port = r.First + uint16((start+i)%n)
	}
	return p
}

// take removes and returns the port that has been unused for longest.
func (p *ports) take() (uint16, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n == 0 || p.now().Sub(p.free[p.head].since) < portCooldown {
		return 0, fmt.Errorf("%w: all %d are in use or rest for %v after their session", errNoPort, len(p.free), portCooldown)
	}
	port := p.free[p.head].port
	p.head, p.n = (p.head+1)%len(p.free), p.n-1
	return port, nil
}

// give returns a port that take has removed. It must be called once for each such port.
func (p *ports) give(port uint16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free[(p.head+p.n)%len(p.free)] = freePort{port: port, since: p.now()}
	p.n++
}

// bind calls open with one port after the other until it finds one that no other program uses. The
// caller must return the port by give.
func (p *ports) bind(open func(port uint16) error) (uint16, error) {
	for tries := 1; ; tries++ {
		port, err := p.take()
		if err != nil {
			return 0, err
		}
		err = open(port)
		if err == nil {
			return port, nil
		}
		p.give(port)
		if !errors.Is(err, unix.EADDRINUSE) || tries == maxPortTries {
			return 0, err
		}
	}
}

// checkPortOverlap returns an error if the system's range of local ports overlaps the session
// ports, because the system must not assign session ports to other connections.
func checkPortOverlap(r control.PortRange) error {
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return nil // a system without the setting
	}
	f := strings.Fields(string(b))
	if len(f) != 2 {
		return nil
	}
	first, err1 := strconv.Atoi(f[0])
	last, err2 := strconv.Atoi(f[1])
	if err1 != nil || err2 != nil || first > int(r.Last) || last < int(r.First) {
		return nil
	}
	return fmt.Errorf("net.ipv4.ip_local_port_range is %d to %d, and sessions use %d to %d: change one of them", first, last, r.First, r.Last)
}
