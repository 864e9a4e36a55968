package stage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/openflow"
)

// Ports of DHCP.
const (
	dhcpServer = 67
	dhcpClient = 68
)

// Radio is an interface of a host on which any number of simulated devices
// speak, by frames of their own: the kernel's IP stack has no part in it.
type Radio struct {
	name    string
	file    *os.File
	running sync.WaitGroup

	mu      sync.Mutex
	hosts   map[netip.Addr]openflow.MAC // whose ARP is answered
	answers map[dhcpv4.TransactionID]chan dhcpAnswer
	sinks   map[netip.Addr]func(payload []byte, at time.Time)
}

// dhcpAnswer is a DHCP server's message as it arrived.
type dhcpAnswer struct {
	message *dhcpv4.DHCPv4
	at      time.Time
}

const radioBuffer = 16 << 20

// OpenRadio opens an interface of a host for simulated devices.
func OpenRadio(host Inside, name string) (*Radio, error) {
	r := &Radio{
		name: name, hosts: map[netip.Addr]openflow.MAC{},
		answers: map[dhcpv4.TransactionID]chan dhcpAnswer{}, sinks: map[netip.Addr]func([]byte, time.Time){},
	}
	if err := host.Do(r.open); err != nil {
		return nil, fmt.Errorf("open interface %s for frames: %w", name, err)
	}
	r.running.Add(1)
	go func() { defer r.running.Done(); r.listen() }()
	return r, nil
}

func (r *Radio) open() error {
	link, err := net.InterfaceByName(r.name)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	for _, o := range []struct{ level, name, value int }{
		{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1},
		{unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1},
		{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, radioBuffer},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			unix.Close(fd)
			return err
		}
	}
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index}); err != nil {
		unix.Close(fd)
		return err
	}
	r.file = os.NewFile(uintptr(fd), r.name)
	return nil
}

// Name is the interface's name.
func (r *Radio) Name() string { return r.name }

// Close closes the interface and returns when nobody listens any more.
func (r *Radio) Close() {
	r.file.Close()
	r.running.Wait()
}

func (r *Radio) send(frame []byte) error {
	if _, err := r.file.Write(frame); err != nil {
		return fmt.Errorf("send by %s: %w", r.name, err)
	}
	return nil
}

// listen hands on what arrives until the interface is closed.
func (r *Radio) listen() {
	raw, err := r.file.SyscallConn()
	if err != nil {
		return
	}
	frame, oob := make([]byte, 65536), make([]byte, 128)
	for {
		var n, oobn int
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, oobn, _, _, failed = unix.Recvmsg(int(fd), frame, oob, 0)
			return !errors.Is(failed, unix.EAGAIN)
		})
		switch {
		case err != nil:
			return
		case errors.Is(failed, unix.ENETDOWN), errors.Is(failed, unix.EINTR):
			continue // the link went down; it may come up again
		case failed != nil:
			return
		}
		r.take(frame[:n], time.Unix(0, stamp(oob[:oobn])))
	}
}

// take finds out for whom a frame is. What is for nobody is dropped.
func (r *Radio) take(frame []byte, at time.Time) {
	h, err := packet.Parse(frame)
	if err == nil && h.Has(packet.ARP) {
		r.resolve(&h)
		return
	}
	if err != nil || !h.Has(packet.IPv4|packet.UDP) || h.End > len(frame) {
		return
	}
	payload := frame[h.Payload:h.End]
	if h.SrcPort == dhcpServer && h.DstPort == dhcpClient {
		r.answer(payload, at)
		return
	}
	r.mu.Lock()
	sink := r.sinks[h.Dst]
	r.mu.Unlock()
	if sink != nil {
		sink(payload, at)
	}
}

// resolve answers a question for the address of a device that is here.
func (r *Radio) resolve(h *packet.Headers) {
	r.mu.Lock()
	mac, here := r.hosts[h.Dst]
	r.mu.Unlock()
	if here && h.ARPOp == packet.ARPRequest {
		_ = r.send(packet.AppendARPReply(nil, h, mac)) // who asks will ask again
	}
}

// inhabit has ARP for an address answered, or no longer.
func (r *Radio) inhabit(addr netip.Addr, mac openflow.MAC, here bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if here {
		r.hosts[addr] = mac
	} else {
		delete(r.hosts, addr)
	}
}

func (r *Radio) answer(payload []byte, at time.Time) {
	m, err := dhcpv4.FromBytes(payload)
	if err != nil {
		return
	}
	r.mu.Lock()
	waiting := r.answers[m.TransactionID]
	r.mu.Unlock()
	if waiting == nil {
		return
	}
	select {
	case waiting <- dhcpAnswer{m, at}:
	default: // it has more answers than it can want
	}
}

// expect returns where the answers to a transaction will come, until forget is called.
func (r *Radio) expect(id dhcpv4.TransactionID) (answers <-chan dhcpAnswer, forget func()) {
	c := make(chan dhcpAnswer, 8)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[id] = c
	return c, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.answers, id)
	}
}

// Hear has the payload of every UDP packet to an address handed to f, with the
// time at which the kernel received it; nil ends that.
func (r *Radio) Hear(addr netip.Addr, f func(payload []byte, at time.Time)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f == nil {
		delete(r.sinks, addr)
		return
	}
	r.sinks[addr] = f
}
