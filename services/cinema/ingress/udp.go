package ingress

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/sluice-net/sluice/services/cinema/mpegts"
)

// maxDatagrams bounds the datagrams of a producer that wait to be read.
const maxDatagrams = 2048

// openUDP starts to wait for producers that send MPEG-TS over UDP. The first sender is the producer.
// Other senders are refused until that producer is silent.
func openUDP(r *receiver) error {
	at := net.UDPAddrFromAddrPort(r.place.at)
	open := net.ListenUDP
	if r.place.at.Addr().IsMulticast() {
		open = func(network string, at *net.UDPAddr) (*net.UDPConn, error) {
			return net.ListenMulticastUDP(network, nil, at)
		}
	}
	conn, err := open("udp", at)
	if err != nil {
		return err
	}
	_ = conn.SetReadBuffer(2 << 20) // up to the kernel's limit
	context.AfterFunc(r.tasks.Context(), func() { _ = conn.Close() })
	r.tasks.Start(func(context.Context) { r.readUDP(conn) })
	return nil
}

// readUDP reads datagrams until the connection is closed.
func (r *receiver) readUDP(conn *net.UDPConn) {
	buf := make([]byte, 64<<10)
	var from netip.AddrPort
	var to *datagrams
	for {
		n, sender, err := conn.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n < mpegts.PacketSize || len(synchronize(buf[:n])) < mpegts.PacketSize {
			continue // an error of one datagram, or a datagram that is no transport stream
		}
		if to == nil || sender != from || to.closed() {
			x := newDatagrams()
			if err := r.publish(newProducer(sender.String(), newTSStream(x.next, x.close), time.Now())); err != nil {
				r.refuse(sender.Addr(), err)
				continue
			}
			from, to = sender, x
		}
		to.add(buf[:n])
	}
}

// datagrams is a queue of a producer's datagrams.
type datagrams struct {
	queue  chan []byte
	ended  context.Context
	cancel context.CancelFunc
}

func newDatagrams() *datagrams {
	d := &datagrams{queue: make(chan []byte, maxDatagrams)}
	d.ended, d.cancel = context.WithCancel(context.Background())
	return d
}

func (d *datagrams) close() { d.cancel() }

func (d *datagrams) closed() bool { return d.ended.Err() != nil }

// add adds a datagram, which is lost if the queue is full.
func (d *datagrams) add(b []byte) {
	select {
	case d.queue <- bytes.Clone(b):
	default:
	}
}

// next waits for the next datagram and returns it.
func (d *datagrams) next(deadline time.Time) ([]byte, error) {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case b := <-d.queue:
		return b, nil
	case <-d.ended.Done():
		return nil, errEnded
	case <-timer.C:
		return nil, os.ErrDeadlineExceeded
	}
}
