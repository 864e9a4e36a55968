package network_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/logtest"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// rawSocket is a host's interface without a network stack.
type rawSocket struct {
	fd int
	to unix.SockaddrLinklayer
}

const etherLLDP = 0x88cc

// openRaw opens an interface of a host for LLDP frames.
func openRaw(t *testing.T, l *lab.Lab, host, dev string) *rawSocket {
	t.Helper()
	s := &rawSocket{fd: -1}
	err := l.Host(host).Do(func() (err error) {
		i, err := net.InterfaceByName(dev)
		if err != nil {
			return err
		}
		network := uint16(etherLLDP>>8 | etherLLDP&0xff<<8)
		s.to = unix.SockaddrLinklayer{Protocol: network, Ifindex: i.Index}
		if s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(network)); err != nil {
			return err
		}
		member := unix.PacketMreq{Ifindex: int32(i.Index), Type: unix.PACKET_MR_ALLMULTI}
		return errors.Join(unix.Bind(s.fd, &s.to), unix.SetsockoptPacketMreq(s.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &member),
			unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(s.fd) })
	return s
}

// probe is the next probe that the switch sends to the host.
func (s *rawSocket) probe(t *testing.T) []byte {
	t.Helper()
	b := make([]byte, 2000)
	for {
		n, from, err := unix.Recvfrom(s.fd, b, 0)
		if err != nil {
			t.Fatalf("no probe comes out of the host's port: %v", err)
		}
		if ll := from.(*unix.SockaddrLinklayer); ll.Pkttype != unix.PACKET_OUTGOING {
			return b[:n]
		}
	}
}

func (s *rawSocket) send(t *testing.T, frame []byte) {
	t.Helper()
	if err := unix.Sendto(s.fd, frame, 0, &s.to); err != nil {
		t.Fatal(err)
	}
}

// TestHostCannotForgeALink has two hosts try to make the controller believe in a
// link between their ports, with all that they can hear.
func TestHostCannotForgeALink(t *testing.T) {
	l := lab.New(t, lab.Line("netforge", 2, delayline.Params{}))
	var log logtest.Log
	n, _ := run(t, l, network.Config{Log: log.Logger()})
	ready(t, n, 2, 1, 2)
	links := make(chan network.Event, 16)
	n.Subscribe(func(e network.Event) {
		if e.Kind == network.LinkUp || e.Kind == network.LinkDown {
			links <- e
		}
	})
	h1 := openRaw(t, l, "h1", interfaceOf(t, l, "h1", l.Host("h1").Addr()))
	h2 := openRaw(t, l, "h2", interfaceOf(t, l, "h2", l.Host("h2").Addr()))

	heard := h2.probe(t)
	at := bytes.Index(heard, []byte{0, 0, 0, 0, 0, 0, 0, 2}) // the body names switch 2
	if at < 0 {
		t.Fatalf("the probe does not name its switch: %x", heard)
	}
	for i := at; i < len(heard)-2; i++ { // one bit of every byte: port, number, time, hash
		forged := bytes.Clone(heard)
		forged[i] ^= 1
		h1.send(t, forged)
	}
	eventually(t, "the log to tell of the forgery", func() bool { return strings.Contains(log.String(), "forged probe") })
	kept := h2.probe(t)
	h1.send(t, h1.probe(t)) // its own probe, sent back
	timer := time.NewTimer(3500 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case e := <-links:
		t.Fatalf("a link has changed: %v %+v", e.Kind, e.Link)
	}
	h1.send(t, kept) // by now a recording
	eventually(t, "the log to tell of the replay", func() bool { return strings.Contains(log.String(), "replayed probe") })
	select {
	case e := <-links:
		t.Fatalf("a link has changed: %v %+v", e.Kind, e.Link)
	default:
	}
	if top := n.Topology(); len(top.Links) != 2 {
		t.Errorf("links %v, want the two directions of one", top.Links)
	}
	ping(t, l, "h2", "h1")
}

// TestLatencyIsMeasured compares measured latency with that of the delay line,
// each direction by itself.
func TestLatencyIsMeasured(t *testing.T) {
	top := lab.Line("netdelay", 2, delayline.Params{Delay: 10 * time.Millisecond})
	for i := range top.Links {
		if top.Links[i].AtoB.Delay > 0 {
			top.Links[i].BtoA.Delay = 40 * time.Millisecond
		}
	}
	l := lab.New(t, top)
	n, _ := run(t, l, network.Config{})
	ready(t, n, 2, 1, 2)
	latency := func(from openflow.DatapathID) time.Duration {
		for _, k := range n.Topology().Links {
			if k.From.Switch == from {
				return k.Latency
			}
		}
		return 0
	}
	near := func(got, want time.Duration) bool {
		return got > want-time.Millisecond && got < want+4*time.Millisecond
	}
	eventually(t, "latencies of 10 ms and 40 ms", func() bool { return near(latency(1), 10*time.Millisecond) && near(latency(2), 40*time.Millisecond) })
	t.Logf("the delay line has 10 ms and 40 ms, measured are %v and %v", latency(1), latency(2))
}

// TestRatesAreMeasured compares the rate of a link with what the sending host's
// own counters say of the same interval.
func TestRatesAreMeasured(t *testing.T) {
	l := lab.New(t, lab.Line("netrate", 2, delayline.Params{}))
	n, _ := run(t, l, network.Config{StatsInterval: 500 * time.Millisecond})
	ready(t, n, 2, 1, 2)
	ping(t, l, "h1", "h2")
	echoes := l.Host("h1").Command(t.Context(), "ping", "-n", "-q", "-i", "0.004", "-s", "1400", l.Host("h2").Addr().String())
	if err := echoes.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = echoes.Wait() }) // after the test's context has ended it
	dev := interfaceOf(t, l, "h1", l.Host("h1").Addr())
	sent := func() float64 {
		var links []struct {
			Stats struct {
				Tx struct{ Bytes float64 }
			} `json:"stats64"`
		}
		if err := json.Unmarshal([]byte(sh(t, l, "h1", "ip", "-s", "-j", "link", "show", "dev", dev)), &links); err != nil || len(links) != 1 {
			t.Fatalf("ip link: %v, %v", links, err)
		}
		return 8 * links[0].Stats.Tx.Bytes
	}
	var readings []reading
	var link network.Link
	eventually(t, "the rate of the link to be that of the host, within a tenth", func() bool {
		readings = append(readings, reading{time.Now(), sent()})
		for _, k := range n.Topology().Links {
			if k.From.Switch == 1 {
				link = k
			}
		}
		r, ok := n.Traffic().Port(link.From)
		from, to := at(readings, r.At.Add(-r.Interval)), at(readings, r.At)
		if !ok || from == 0 || to == 0 {
			return false
		}
		want := (to - from) / r.Interval.Seconds()
		near := want > 200e3 && r.TxBits > 0.9*want && r.TxBits < 1.1*want
		if near {
			t.Logf("the host sent %.0f bit/s, measured are %.0f", want, r.TxBits)
		}
		return near
	})
	eventually(t, "the topology to show it", func() bool {
		for _, k := range n.Topology().Links {
			if k.Used < 200e3 {
				return false
			}
		}
		return true
	})
}

// reading is a counter at a time.
type reading struct {
	at    time.Time
	value float64
}

// at is the counter between two readings, zero outside all of them.
func at(rs []reading, t time.Time) float64 {
	for i := 1; i < len(rs); i++ {
		a, b := rs[i-1], rs[i]
		if !t.Before(a.at) && !t.After(b.at) {
			return a.value + (b.value-a.value)*float64(t.Sub(a.at))/float64(b.at.Sub(a.at))
		}
	}
	return 0
}

// TestAnswersInTheHostsPlace: once a host is known, the question for it need not
// leave the switch it is asked at.
func TestAnswersInTheHostsPlace(t *testing.T) {
	l := lab.New(t, lab.Line("netproxy", 2, delayline.Params{}))
	n, _ := run(t, l, network.Config{})
	ready(t, n, 2, 1, 2)
	ping(t, l, "h1", "h2")
	target := l.Host("h2")
	dev := interfaceOf(t, l, "h2", target.Addr())
	eventually(t, "the host to be known", func() bool { _, ok := n.HostByIP(target.Addr()); return ok })
	sh(t, l, "h2", "ip", "link", "set", dev, "arp", "off") // it answers no question itself now
	asker := interfaceOf(t, l, "h1", l.Host("h1").Addr())
	sh(t, l, "h1", "ip", "neigh", "flush", "dev", asker)
	_, _ = l.Host("h1").Command(t.Context(), "ping", "-n", "-c", "1", "-W", "1", target.Addr().String()).Output()
	got := sh(t, l, "h1", "ip", "neigh", "show", "to", target.Addr().String(), "dev", asker)
	if want := openflow.MAC(target.MAC()).String(); !strings.Contains(got, want) {
		t.Errorf("h1 has learned %q, want %s", strings.TrimSpace(got), want)
	}
}
