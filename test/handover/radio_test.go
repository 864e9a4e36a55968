package handover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/internal/packetsocket"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/openflow"
)

// radio is an interface of a host on which a test simulates, frame by frame, any number of
// devices. It also sees what the host's own programs receive.
type radio struct {
	w      *world
	link   string
	socket *packetsocket.Socket
	done   chan struct{}

	mu      sync.Mutex
	replies map[dhcpv4.TransactionID]chan *dhcpv4.DHCPv4
	watches map[int]func(frame)
	next    int
}

// radio opens the interface ethN of a host. Its watches do not see outgoing frames.
func (w *world) radio(host string, n int) *radio {
	w.t.Helper()
	return w.openRadio(host, n, false)
}

func (w *world) openRadio(host string, n int, outgoing bool) *radio {
	w.t.Helper()
	r := &radio{
		w: w, link: fmt.Sprintf("%s-eth%d", host, n), done: make(chan struct{}),
		replies: map[dhcpv4.TransactionID]chan *dhcpv4.DHCPv4{}, watches: map[int]func(frame){},
	}
	err := w.lab.Host(host).Do(func() (err error) {
		r.socket, err = packetSocket(fmt.Sprintf("eth%d", n), outgoing)
		return err
	})
	if err != nil {
		w.t.Fatalf("packet socket on %s: %v", r.link, err)
	}
	go r.read()
	w.t.Cleanup(func() {
		_ = r.socket.Close()
		<-r.done
	})
	return r
}

// packetSocket opens an interface of the calling thread's namespace. It receives incoming frames
// and, if outgoing is set, outgoing ones.
func packetSocket(name string, outgoing bool) (*packetsocket.Socket, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	return packetsocket.Open(i, packetsocket.Options{Outgoing: outgoing, Buffer: 16 << 20, Batch: 32, MaxFrame: 65536})
}

func (r *radio) read() {
	defer close(r.done)
	for {
		frames, err := r.socket.ReceiveBatch(context.Background())
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			continue // the interface went down: it may come back
		}
		for _, one := range frames {
			if f, ok := parse(one.Data); ok {
				r.take(f)
			}
		}
	}
}

// take passes a frame to those that wait for it.
func (r *radio) take(f frame) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, watch := range r.watches {
		watch(f)
	}
	if f.to.Port() != dhcpClientPort {
		return
	}
	if m := f.dhcp(); m != nil {
		if c := r.replies[m.TransactionID]; c != nil {
			select {
			case c <- m:
			default: // nobody waits for that many
			}
		}
	}
}

// watch calls f with every frame until the returned function is called. The frame is valid only
// during the call.
func (r *radio) watch(f func(frame)) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	n := r.next
	r.watches[n] = f
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.watches, n)
	}
}

func (r *radio) send(b []byte) error {
	err := r.socket.Send(b)
	return err
}

// at returns the switch port where the radio is now.
func (r *radio) at() network.PortRef { return r.w.port(r.link) }

// errSilence says that nobody has answered.
var errSilence = errors.New("no answer")

// ask sends a DHCP message from a hardware address and waits for the answer.
func (r *radio) ask(ctx context.Context, src openflow.MAC, m *dhcpv4.DHCPv4, wait time.Duration) (*dhcpv4.DHCPv4, error) {
	c := make(chan *dhcpv4.DHCPv4, 4)
	r.mu.Lock()
	r.replies[m.TransactionID] = c
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.replies, m.TransactionID)
		r.mu.Unlock()
	}()
	if err := r.tell(src, m); err != nil {
		return nil, err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case reply := <-c:
		return reply, nil
	case <-timer.C:
		return nil, fmt.Errorf("%s of %v: %w", m.MessageType(), src, errSilence)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// tell sends a DHCP message, by broadcast, from a hardware address.
func (r *radio) tell(src openflow.MAC, m *dhcpv4.DHCPv4) error {
	from := netip.IPv4Unspecified()
	if ip, ok := netip.AddrFromSlice(m.ClientIPAddr.To4()); ok {
		from = ip
	}
	return r.send(udpFrame(broadcastMAC, src, netip.AddrPortFrom(from, dhcpClientPort), netip.AddrPortFrom(broadcastIP, dhcpServerPort), m.ToBytes()))
}

// askARP asks who has an address and returns all answers within the time.
func (r *radio) askARP(src openflow.MAC, ip, whose netip.Addr, wait time.Duration) []openflow.MAC {
	var mu sync.Mutex
	var all []openflow.MAC
	first := make(chan struct{}, 1)
	stop := r.watch(func(f frame) {
		if f.arp == nil || f.arp.op != 2 || f.arp.spa != whose || f.arp.tha != src {
			return
		}
		mu.Lock()
		all = append(all, f.arp.sha)
		mu.Unlock()
		select {
		case first <- struct{}{}:
		default:
		}
	})
	defer stop()
	if err := r.send(arpFrame(broadcastMAC, src, 1, src, ip, openflow.MAC{}, whose)); err != nil {
		return nil
	}
	select {
	case <-first:
	case <-time.After(wait):
	}
	mu.Lock()
	defer mu.Unlock()
	return all
}

// hostMAC returns the address of a host's interface ethN.
func hostMAC(h *lab.LiveHost, n int) openflow.MAC { return openflow.MAC(h.MACOf(n)) }
