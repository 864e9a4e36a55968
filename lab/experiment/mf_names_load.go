package experiment

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/net/ipv4"

	"github.com/sluice-net/sluice/services/mobilityfirst/gnrs"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
)

const (
	// nameClients is the number of addresses that send requests, and nameWindow the requests of
	// each at a time: fewer writes than one address is allowed (gnrs.DefaultLimits).
	nameClients, nameWindow = 64, 32
	// nameTimeout is the time after which a request without an answer is sent again, and nameTries
	// how often it is sent.
	nameTimeout, nameTries = time.Second, 10
)

// nameClient is one address that sends requests to a name service.
type nameClient struct {
	conn    *net.UDPConn
	packets *ipv4.PacketConn
	in, out []ipv4.Message
	asked   map[uint32]bool
	cookie  []byte // with which writes prove the address; nil until prove has been called
	first   uint32 // number of the first request, so that a late answer is not taken for that of another one
	again   int    // requests that were sent more than once
}

func newNameClient(n int, server netip.AddrPort) (*nameClient, error) {
	local := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 1, byte(n + 1)}), 0)
	conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(local), net.UDPAddrFromAddrPort(server))
	if err != nil {
		return nil, fmt.Errorf("asking the name service: %w", err)
	}
	c := &nameClient{conn: conn, packets: ipv4.NewPacketConn(conn), asked: map[uint32]bool{}}
	for range nameWindow {
		c.in = append(c.in, ipv4.Message{Buffers: [][]byte{make([]byte, 2048)}})
		c.out = append(c.out, ipv4.Message{Buffers: [][]byte{nil}})
	}
	return c, nil
}

// prove gets the cookie of the name service with which the client may write new names.
func (c *nameClient) prove() error {
	b, err := (&gnrswire.Message{Kind: gnrswire.Lookup, Options: []gnrswire.Option{gnrs.CookieOption(nil)}}).AppendTo(nil)
	if err != nil {
		return err
	}
	in := make([]byte, 2048)
	for range nameTries {
		if _, err := c.conn.Write(b); err != nil {
			return fmt.Errorf("asking the name service: %w", err)
		}
		if err := c.conn.SetReadDeadline(time.Now().Add(nameTimeout)); err != nil {
			return err
		}
		n, err := c.conn.Read(in)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return fmt.Errorf("the name service's answers: %w", err)
		}
		if a, err := gnrswire.Parse(in[:n]); err == nil && gnrs.CookieOf(a) != nil {
			c.cookie = gnrs.CookieOf(a)
			return nil
		}
	}
	return fmt.Errorf("the name service sends no cookie, asked %d times", nameTries)
}

// questions describes a number of requests.
type questions struct {
	count int
	// message returns the i-th request, with a client's cookie if that needs one. The client sets its
	// number. It is called concurrently.
	message func(i int, cookie []byte) ([]byte, error)
	// answered, if set, handles the answer to request i.
	answered func(i int, m *gnrswire.Message) error
}

// askAll sends the requests of all clients as fast as answers arrive. It returns how long it took
// and how many requests were sent again.
func askAll(ctx context.Context, clients []*nameClient, q questions) (took time.Duration, again int, err error) {
	began := time.Now()
	errs := make([]error, len(clients))
	var all sync.WaitGroup
	for n, c := range clients {
		c.again, c.first = 0, rand.Uint32()
		all.Go(func() { errs[n] = c.askEach(ctx, n, len(clients), q) })
	}
	all.Wait()
	for _, c := range clients {
		again += c.again
	}
	return time.Since(began), again, errors.Join(errs...)
}

// askEach sends a client's share of the requests, a window at a time.
func (c *nameClient) askEach(ctx context.Context, first, step int, q questions) error {
	for i := first; i < q.count; {
		clear(c.asked)
		for ; len(c.asked) < nameWindow && i < q.count; i += step {
			c.asked[uint32(i)] = true
		}
		if err := c.window(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// window sends the requests of a window until all of them are answered.
func (c *nameClient) window(ctx context.Context, q questions) error {
	for try := range nameTries {
		if try > 0 {
			c.again += len(c.asked)
		}
		if err := c.send(q); err != nil {
			return err
		}
		if err := c.receive(ctx, q); err != nil || len(c.asked) == 0 {
			return err
		}
	}
	return fmt.Errorf("%d questions are not answered, asked %d times", len(c.asked), nameTries)
}

func (c *nameClient) send(q questions) error {
	out := c.out[:0]
	for i := range c.asked {
		b, err := q.message(int(i), c.cookie)
		if err != nil {
			return err
		}
		binary.BigEndian.PutUint32(b[4:], c.first+i)
		out = c.out[:len(out)+1]
		out[len(out)-1].Buffers[0] = b
	}
	for len(out) > 0 {
		n, err := c.packets.WriteBatch(out, 0)
		if err != nil {
			return fmt.Errorf("asking the name service: %w", err)
		}
		out = out[n:]
	}
	return nil
}

// receive receives answers until all requests are answered, or none has arrived for a while.
func (c *nameClient) receive(ctx context.Context, q questions) error {
	for len(c.asked) > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := c.conn.SetReadDeadline(time.Now().Add(nameTimeout)); err != nil {
			return err
		}
		n, err := c.packets.ReadBatch(c.in, 0)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the name service's answers: %w", err)
		}
		for _, m := range c.in[:n] {
			a, err := gnrswire.Parse(m.Buffers[0][:m.N])
			if err != nil {
				return fmt.Errorf("the name service's answers: %w", err)
			}
			if cookie := gnrs.CookieOf(a); cookie != nil {
				c.cookie = bytes.Clone(cookie) // the buffer is used again
			}
			i := a.Request - c.first
			if !c.asked[i] {
				continue
			}
			switch code := gnrs.Code(a.Code); code {
			case gnrs.OK:
				delete(c.asked, i)
				if q.answered == nil {
					continue
				}
				if err := q.answered(int(i), a); err != nil {
					return err
				}
			case gnrs.Busy, gnrs.TooOften, gnrs.Unproven: // the request is sent again
			default:
				return &gnrs.RefusedError{Kind: a.Kind, Code: code}
			}
		}
	}
	return nil
}
