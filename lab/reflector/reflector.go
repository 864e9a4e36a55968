package reflector

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/sluice-net/sluice/openflow"
)

// Port is a port of a switch.
type Port struct {
	Switch openflow.DatapathID
	Number uint32
}

// maxSwitches bounds the connections at one time.
const maxSwitches = 64

// controller holds the switches that are connected.
type controller struct {
	out Port

	mu       sync.Mutex
	switches map[openflow.DatapathID]net.Conn
}

// Serve accepts switches from l until ctx ends, and sends their packets out of a port. It closes l.
func Serve(ctx context.Context, l net.Listener, out Port) error {
	c := &controller{out: out, switches: map[openflow.DatapathID]net.Conn{}}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	room := make(chan struct{}, maxSwitches)
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept a switch: %w", err)
		}
		select {
		case room <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		wg.Go(func() {
			defer func() { <-room }()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			defer conn.Close()
			_ = c.serve(conn) // the switch connects again
		})
	}
}

// serve answers one switch until its connection ends.
func (c *controller) serve(conn net.Conn) error {
	var own, packets []byte // what goes to this switch, and to the switch of the port
	var err error
	for i, m := range []openflow.Message{openflow.NewHello(), &openflow.FeaturesRequest{}} {
		if own, err = m.AppendTo(own, uint32(i)+1); err != nil {
			return err
		}
	}
	if _, err := conn.Write(own); err != nil {
		return err
	}
	r := openflow.NewReader(conn)
	var in openflow.PacketIn
	actions := []openflow.Action{openflow.Output(c.out.Number)}
	for {
		own, packets = own[:0], packets[:0]
		for more := true; more; more = r.Buffered() {
			m, err := r.Next()
			if err != nil {
				return err
			}
			switch openflow.MsgType(m[1]) {
			case openflow.TypePacketIn:
				if err := in.Decode(m); err != nil {
					return err
				}
				out := openflow.PacketOut{BufferID: openflow.NoBuffer, InPort: openflow.PortController, Actions: actions, Data: in.Data}
				if packets, err = out.AppendTo(packets, openflow.XID(m)); err != nil {
					return err
				}
			case openflow.TypeEchoRequest:
				if own, err = (&openflow.EchoReply{Data: m[8:]}).AppendTo(own, openflow.XID(m)); err != nil {
					return err
				}
			case openflow.TypeFeaturesReply:
				var f openflow.FeaturesReply
				if err := f.Decode(m); err != nil {
					return err
				}
				c.connected(f.DatapathID, conn)
				defer c.disconnected(f.DatapathID, conn)
			default:
			}
		}
		if err := c.write(conn, own, packets); err != nil {
			return err
		}
	}
}

// write writes a switch's answers to it, and packets to the switch of the port, if that is connected.
func (c *controller) write(conn net.Conn, own, packets []byte) error {
	if len(own) > 0 {
		if _, err := conn.Write(own); err != nil {
			return err
		}
	}
	if len(packets) == 0 {
		return nil
	}
	c.mu.Lock()
	to := c.switches[c.out.Switch]
	c.mu.Unlock()
	if to == nil {
		return nil
	}
	if _, err := to.Write(packets); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func (c *controller) connected(d openflow.DatapathID, conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.switches[d] = conn
}

func (c *controller) disconnected(d openflow.DatapathID, conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.switches[d] == conn {
		delete(c.switches, d)
	}
}
