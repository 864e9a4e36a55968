package datapath_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	switches  = 10
	perSecond = 100 // datagrams
)

// numbered is a stream of numbered datagrams, with those that have arrived.
type numbered struct {
	from, to net.PacketConn
	sent     int

	mu   sync.Mutex
	seen map[uint64]int
}

// newNumbered opens the two ends.
func newNumbered(t *testing.T, a *space, addrA netip.Addr, b *space, addrB netip.Addr, port uint16) *numbered {
	t.Helper()
	n := &numbered{seen: map[uint64]int{}}
	listen := func(s *space, addr netip.Addr) (c net.PacketConn) {
		s.must(t, func() (err error) {
			c, err = net.ListenPacket("udp4", netip.AddrPortFrom(addr, port).String())
			if err != nil {
				return err
			}
			// The test is about the datapath and not about how soon its own process reads.
			raw, err := c.(*net.UDPConn).SyscallConn()
			if err != nil {
				return err
			}
			var set error
			err = raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20) })
			return errors.Join(err, set)
		})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	n.from, n.to = listen(a, addrA), listen(b, addrB)
	return n
}

// receive reads until the socket is closed or idle past the deadline.
func (n *numbered) receive() {
	b := make([]byte, 100)
	for {
		size, _, err := n.to.ReadFrom(b)
		if err != nil {
			return
		}
		if size >= 8 {
			n.mu.Lock()
			n.seen[binary.BigEndian.Uint64(b)]++
			n.mu.Unlock()
		}
	}
}

// count returns how many different datagrams have arrived.
func (n *numbered) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.seen)
}

// send sends at a steady rate until stop is closed.
func (n *numbered) send(t *testing.T, stop <-chan struct{}) {
	to := net.UDPAddrFromAddrPort(n.to.LocalAddr().(*net.UDPAddr).AddrPort())
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			b := binary.BigEndian.AppendUint64(nil, uint64(n.sent))
			if _, err := n.from.WriteTo(b, to); err != nil {
				t.Errorf("sending: %v", err)
				return
			}
			n.sent++
		}
	}
}

// result returns how many datagrams were lost, and how many arrived more than once.
func (n *numbered) result() (lost, doubled int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.sent {
		switch times := n.seen[uint64(i)]; times {
		case 0:
			lost++
		default:
			doubled += times - 1
		}
	}
	return lost, doubled
}

// iperf is the part of iperf3's report that the tests read.
type iperf struct {
	Error string `json:"error"`
	End   struct {
		SumSent struct {
			Retransmits int `json:"retransmits"`
		} `json:"sum_sent"`
		SumReceived struct {
			Bytes int     `json:"bytes"`
			Bits  float64 `json:"bits_per_second"`
		} `json:"sum_received"`
	} `json:"end"`
}

// startIperf starts the server and returns the command for the device.
func (a *access) startIperf(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	server := exec.Command("iperf3", "-s", "-1", "-B", peer4.String())
	a.server.start(t, server)
	eventually(t, "iperf3 listens", func() bool {
		var sockets []byte
		a.server.must(t, func() (err error) {
			sockets, err = os.ReadFile("/proc/thread-self/net/tcp")
			return err
		})
		return strings.Contains(string(sockets), ":1451 00000000:0000 0A") // port 5201 in state LISTEN
	})
	return exec.Command("iperf3", append([]string{"-c", peer4.String(), "-J"}, args...)...)
}

// TestSwitching moves a device back and forth under a TCP download and numbered datagrams in both
// directions, while the network sends to both places: no datagram is lost and none arrives twice.
func TestSwitching(t *testing.T) {
	a := newAccess(t, true)
	if _, err := exec.LookPath("iperf3"); err != nil {
		t.Skip(err)
	}
	dp := a.opened(t, a.config())
	a.address(t, vni, ownNet, peer4, serverMAC)
	dp.use(wifi, wifi)

	download := a.startIperf(t, "-R", "-b", "10M", "-n", "4M")
	var report strings.Builder
	download.Stdout = &report
	down := newNumbered(t, a.server, peer4, a.space, own4, 7001)
	up := newNumbered(t, a.space, own4, a.server, peer4, 7002)
	stop := make(chan struct{})
	var sending, receiving sync.WaitGroup
	for _, n := range []*numbered{down, up} {
		receiving.Go(n.receive)
		sending.Go(func() { n.send(t, stop) })
	}
	a.start(t, download)

	at, next := wifi, lte
	for range switches {
		for _, n := range []*numbered{down, up} {
			came := n.count()
			eventually(t, "datagrams arrive", func() bool { return n.count() >= came+perSecond/5 })
		}
		dp.move(at, next)
		at, next = next, at
	}
	downloadErr := download.Wait()
	close(stop)
	sending.Wait()
	for _, n := range []*numbered{down, up} { // datagrams in flight arrive
		eventually(t, "the last datagram arrives", func() bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.seen[uint64(n.sent-1)] > 0
		})
		_ = n.to.Close()
	}
	receiving.Wait()

	var r iperf
	if err := json.Unmarshal([]byte(report.String()), &r); err != nil || r.Error != "" || downloadErr != nil {
		t.Errorf("download: %v, %v, %q", downloadErr, err, r.Error)
	}
	lost, doubled := down.result()
	lostUp, doubledUp := up.result()
	t.Logf("%d switches; down: %d sent, %d lost, %d doubled; up: %d sent, %d lost, %d doubled",
		switches, down.sent, lost, doubled, up.sent, lostUp, doubledUp)
	if lost+lostUp+doubled+doubledUp != 0 {
		t.Error("datagrams were lost, or doubled")
	}
}

// TestOffload checks TCP with all offloads of the device enabled: large frames and partial
// checksums.
func TestOffload(t *testing.T) {
	a := newAccess(t, false)
	dp := a.opened(t, a.config())
	a.address(t, vni, ownNet, peer4, serverMAC)
	dp.use(wifi, wifi)
	for _, direction := range []string{"up", "down"} {
		args := []string{"-n", "64M"}
		if direction == "down" {
			args = append(args, "-R")
		}
		upload := a.startIperf(t, args...)
		var r iperf
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var out []byte
		err := a.do(func() (err error) {
			out, err = exec.CommandContext(ctx, upload.Path, upload.Args[1:]...).Output()
			return err
		})
		cancel()
		if err := errors.Join(err, json.Unmarshal(out, &r)); err != nil || r.Error != "" {
			t.Fatalf("%s: %v, %q", direction, err, r.Error)
		}
		if r.End.SumReceived.Bytes < 32e6 { // the report omits what is in flight at the end
			t.Errorf("%s: %d bytes of 64 MB arrived", direction, r.End.SumReceived.Bytes)
		}
	}
	s := dp.stats().Interfaces[wifi]
	out, in := s.SentBytes/s.SentPackets, s.ReceivedBytes/s.ReceivedPackets
	if out < 3000 || in < 3000 { // the mean over large frames and acknowledgements
		t.Errorf("frames of %d bytes on average leave, and of %d arrive: they were cut on the way", out, in)
	}
	for name, s := range map[string]*space{"device": a.space, "server": a.server} {
		if n := tcpChecksumErrors(t, s); n != 0 {
			t.Errorf("%s: %d TCP segments with a wrong checksum", name, n)
		}
	}
}

// tcpChecksumErrors returns the kernel's counter of a namespace.
func tcpChecksumErrors(t *testing.T, s *space) int {
	t.Helper()
	var text []byte
	s.must(t, func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/snmp")
		return err
	})
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] != "Tcp:":
		case names == nil:
			names = fields
		default:
			for i, name := range names {
				if name == "InCsumErrors" {
					n, err := strconv.Atoi(fields[i])
					if err != nil {
						t.Fatal(err)
					}
					return n
				}
			}
		}
	}
	t.Fatal("the kernel does not count wrong checksums")
	return 0
}
